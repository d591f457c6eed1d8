# The GPU plug-in muster_cuda.so: src/cuda/*.cu, compiled by nvcc. It is no part of `all`: `make cuda` builds it where nvcc is
# found, and `make install` installs it if it was built. cuBLASLt and cuDNN are loaded at run time; their headers are needed here.
set(MUSTER_CUDA_ARCHITECTURES "90a" CACHE STRING "GPU architectures of the plug-in, such as 80;90a")
find_program(MUSTER_NVCC nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda/bin)
mark_as_advanced(MUSTER_NVCC)
if(NOT MUSTER_NVCC)
  add_custom_target(cuda COMMAND ${CMAKE_COMMAND} -E echo "nvcc was not found: install the CUDA toolkit, or set CUDA_HOME"
    COMMAND ${CMAKE_COMMAND} -E false VERBATIM)
  return()
endif()
set(MUSTER_NVCC_FLAGS -std=c++17 -O3 -lineinfo --threads 1 --cudart static -Xcompiler -fPIC,-fvisibility=hidden,-Wall
  --expt-relaxed-constexpr -I${PROJECT_SOURCE_DIR}/src)
foreach(arch ${MUSTER_CUDA_ARCHITECTURES})
  list(APPEND MUSTER_NVCC_FLAGS -gencode arch=compute_${arch},code=sm_${arch})
endforeach()
file(GLOB MUSTER_CUDA_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/*.cu)
set(MUSTER_CUDA_OBJECTS "")
foreach(source ${MUSTER_CUDA_SOURCES})
  get_filename_component(name ${source} NAME_WE)
  set(object ${PROJECT_BINARY_DIR}/cuda/${name}.o)
  add_custom_command(OUTPUT ${object} COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/cuda
    COMMAND ${MUSTER_NVCC} ${MUSTER_NVCC_FLAGS} -MD -MF ${object}.d -c ${source} -o ${object}
    DEPENDS ${source} DEPFILE ${object}.d VERBATIM)
  list(APPEND MUSTER_CUDA_OBJECTS ${object})
endforeach()
add_custom_command(OUTPUT ${PROJECT_BINARY_DIR}/muster_cuda.so
  COMMAND ${MUSTER_NVCC} ${MUSTER_NVCC_FLAGS} -shared -o ${PROJECT_BINARY_DIR}/muster_cuda.so ${MUSTER_CUDA_OBJECTS} -ldl
  DEPENDS ${MUSTER_CUDA_OBJECTS} VERBATIM)
add_custom_target(cuda DEPENDS ${PROJECT_BINARY_DIR}/muster_cuda.so)
install(FILES ${PROJECT_BINARY_DIR}/muster_cuda.so DESTINATION ${CMAKE_INSTALL_LIBDIR}/muster OPTIONAL)
