#!/bin/sh
# Writes all manual pages: man_pages.sh MUSTER FOLDER.
set -e
rm -rf "$2"
mkdir -p "$2"
for page in $("$1" man); do
  "$1" man "$page" >"$2/$page"
done
