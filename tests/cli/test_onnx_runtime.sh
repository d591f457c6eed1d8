# The models of test_onnx.sh, computed by onnxruntime-node, which npm fetches.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"
for package in onnxruntime-node onnxruntime-common; do
  mkdir -p runtime/node_modules/$package
  if ! (cd runtime && timeout 120 npm pack --silent $package@1.14.0 >/dev/null 2>&1 &&
    tar xzf $package-1.14.0.tgz -C node_modules/$package --strip-components 1); then
    echo "skipped: npm cannot fetch $package"
    exit 77
  fi
done
runtime=$work/runtime
. "$here/test_onnx.sh" "$1"
