# The MPI plug-ins: src/mpi/plugin.c compiled once per installed implementation. MPI is optional: `muster list mpi` shows
# the plug-ins of a build. `mpicc` may belong to either implementation, so its <mpi.h> is checked.
include(CheckCSourceCompiles)

# Sets <out>_COMPILE and <out>_LINK from a compiler wrapper that supports these two flags.
function(muster_ask_mpicc out wrapper compile_flag link_flag)
  execute_process(COMMAND ${wrapper} ${compile_flag} OUTPUT_VARIABLE compile RESULT_VARIABLE failed_compile ERROR_QUIET
    OUTPUT_STRIP_TRAILING_WHITESPACE)
  execute_process(COMMAND ${wrapper} ${link_flag} OUTPUT_VARIABLE link RESULT_VARIABLE failed_link ERROR_QUIET
    OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(failed_compile OR failed_link)
    return()
  endif()
  separate_arguments(compile UNIX_COMMAND "${compile}")
  separate_arguments(link UNIX_COMMAND "${link}")
  # removes the name of the compiler and the optimisation flags of the wrapper's own build
  list(FILTER compile INCLUDE REGEX "^-[ID]|^-pthread$")
  list(FILTER link INCLUDE REGEX "^-[Ll]|^-Wl,|^-pthread$|\\.(so|a)$")
  set(${out}_COMPILE ${compile} PARENT_SCOPE)
  set(${out}_LINK ${link} PARENT_SCOPE)
endfunction()

# name: of the plug-in; is: a macro of its <mpi.h>; then the flags of the wrapper and the name for pkg-config
function(muster_mpi_plugin name is compile_flag link_flag package)
  set(found_COMPILE "")
  set(found_LINK "")
  foreach(wrapper mpicc mpicc.${name}) # mpicc first: on a cluster it belongs to the loaded module
    find_program(MUSTER_${wrapper} ${wrapper})
    mark_as_advanced(MUSTER_${wrapper})
    if(MUSTER_${wrapper} AND NOT found_LINK)
      muster_ask_mpicc(found ${MUSTER_${wrapper}} ${compile_flag} ${link_flag})
    endif()
  endforeach()
  if(NOT found_LINK)
    pkg_check_modules(MUSTER_PC_${name} QUIET ${package})
    if(MUSTER_PC_${name}_FOUND)
      set(found_COMPILE ${MUSTER_PC_${name}_CFLAGS})
      set(found_LINK ${MUSTER_PC_${name}_LDFLAGS})
    endif()
  endif()
  if(NOT found_LINK)
    return()
  endif()
  set(CMAKE_REQUIRED_FLAGS ${found_COMPILE})
  list(JOIN CMAKE_REQUIRED_FLAGS " " CMAKE_REQUIRED_FLAGS)
  set(CMAKE_REQUIRED_LIBRARIES ${found_LINK})
  check_c_source_compiles("#include <mpi.h>\n#ifndef ${is}\n#error another MPI\n#endif\nint main(void) { return MPI_Init(0, 0); }"
    MUSTER_MPI_${name}_WORKS)
  if(NOT MUSTER_MPI_${name}_WORKS)
    message(WARNING "MPI: ${name} was found, but a program cannot be linked against it; its plug-in is left out")
    return()
  endif()
  set(target muster_mpi_${name})
  add_library(${target} MODULE ${PROJECT_SOURCE_DIR}/src/mpi/plugin.c)
  set_target_properties(${target} PROPERTIES PREFIX "" C_VISIBILITY_PRESET hidden
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
  string(REPLACE "-I" "" folders "${found_COMPILE}")
  list(FILTER folders INCLUDE REGEX "^/")
  target_include_directories(${target} SYSTEM PRIVATE ${folders})
  list(FILTER found_COMPILE EXCLUDE REGEX "^-I")
  # gcc mistakes the constant MPI_STATUSES_IGNORE for a short array
  target_compile_options(${target} PRIVATE ${found_COMPILE} $<$<C_COMPILER_ID:GNU>:-Wno-stringop-overflow>)
  target_compile_definitions(${target} PRIVATE MST_MPI_NAME="${name}")
  target_link_libraries(${target} PRIVATE muster_flags ${found_LINK})
  install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/muster)
  add_dependencies(muster ${target})
  set(MUSTER_MPI_FOUND "${MUSTER_MPI_FOUND} ${name}" PARENT_SCOPE)
endfunction()

set(MUSTER_MPI_FOUND "")
muster_mpi_plugin(openmpi OPEN_MPI --showme:compile --showme:link ompi-c)
muster_mpi_plugin(mpich MPICH_VERSION -compile_info -link_info mpich)
if(MUSTER_MPI_FOUND)
  message(STATUS "MPI plug-ins:${MUSTER_MPI_FOUND}")
else()
  message(WARNING "MPI was not found (libopenmpi-dev, libmpich-dev): everything but mpirun and srun works without it")
endif()

# Folders of installed plug-ins: relative to the binary, and absolute (for programs that link libmuster).
file(RELATIVE_PATH MUSTER_PLUGINS_FROM_BIN /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR}/muster)
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/mpi/mpi.c PROPERTIES COMPILE_DEFINITIONS
  "MUSTER_PLUGINS_FROM_BIN=\"${MUSTER_PLUGINS_FROM_BIN}\";MUSTER_PLUGINS_INSTALLED=\"${CMAKE_INSTALL_FULL_LIBDIR}/muster\"")
