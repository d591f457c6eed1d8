# The page of `muster dash`: libmicrohttpd serves it (and muster serve), and web/ with uPlot is part of the binary. Both are optional: without
# libmicrohttpd, `muster dash` reports this; without uPlot, the page draws simple plots.
unset(__pkg_config_checked_MICROHTTPD CACHE) # it may have been installed or removed
pkg_check_modules(MICROHTTPD IMPORTED_TARGET libmicrohttpd)
if(MICROHTTPD_FOUND)
  target_link_libraries(muster_lib PUBLIC PkgConfig::MICROHTTPD)
  set_source_files_properties(src/http/endpoint.c src/dash/http.c src/serve/serve_http.c
                              PROPERTIES COMPILE_DEFINITIONS MUSTER_HTTP)
else()
  message(WARNING "libmicrohttpd is not there (Debian: libmicrohttpd-dev): muster is built without its web servers, muster dash and muster serve")
endif()

# npm fetches uPlot once per build folder. It is used only if it has the expected hash.
set(MUSTER_UPLOT "" CACHE PATH "folder of the npm package uplot; empty: fetched by npm when the build is configured")
set(UPLOT_VERSION 1.6.32)
set(UPLOT_SHA512 2883159c6ebccefbb95d751b0b82d010f9e1c0ec41b8bc96d401eda66e882935c89a46cb824332fa369b8cb8122cc6ac36e186cd09bf7a9ded3a4c93c6989023)
set(uplot_folder "${MUSTER_UPLOT}")
if(NOT uplot_folder)
  set(uplot_work ${CMAKE_CURRENT_BINARY_DIR}/uplot)
  set(uplot_archive ${uplot_work}/uplot-${UPLOT_VERSION}.tgz)
  if(NOT EXISTS ${uplot_archive} AND NOT MUSTER_UPLOT_ASKED)
    set(MUSTER_UPLOT_ASKED ON CACHE INTERNAL "npm was asked for uPlot")
    file(MAKE_DIRECTORY ${uplot_work})
    find_program(NPM npm)
    if(NPM)
      execute_process(COMMAND ${NPM} pack --ignore-scripts --silent --fetch-retries=1 --fetch-timeout=20000
        uplot@${UPLOT_VERSION} WORKING_DIRECTORY ${uplot_work} TIMEOUT 60 OUTPUT_QUIET ERROR_QUIET)
    endif()
  endif()
  if(EXISTS ${uplot_archive})
    file(SHA512 ${uplot_archive} uplot_sum)
    if(uplot_sum STREQUAL UPLOT_SHA512)
      file(ARCHIVE_EXTRACT INPUT ${uplot_archive} DESTINATION ${uplot_work})
      set(uplot_folder ${uplot_work}/package)
    else()
      message(WARNING "${uplot_archive} is not uPlot ${UPLOT_VERSION}: its SHA-512 is ${uplot_sum}; it is not used")
    endif()
  else()
    message(WARNING "uPlot ${UPLOT_VERSION} could not be fetched by npm: the page of muster dash draws its plots plainly; "
      "to try again, configure with -UMUSTER_UPLOT_ASKED, or give its folder with -DMUSTER_UPLOT=FOLDER")
  endif()
endif()

set(dash_assets ${CMAKE_CURRENT_BINARY_DIR}/generated/dash_assets.c)
file(GLOB dash_pages CONFIGURE_DEPENDS web/*)
add_custom_command(OUTPUT ${dash_assets}
  COMMAND ${CMAKE_COMMAND} -DWEB=${CMAKE_CURRENT_SOURCE_DIR}/web -DUPLOT=${uplot_folder} -DOUT=${dash_assets}
    -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/embed.cmake
  DEPENDS ${dash_pages} ${CMAKE_CURRENT_SOURCE_DIR}/cmake/embed.cmake VERBATIM)
target_sources(muster_lib PRIVATE ${dash_assets})
