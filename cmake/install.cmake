# What `cmake --install` puts where, and the package that find_package(norma) finds.
include(CMakePackageConfigHelpers)

set(rooms base core ops nn models export data parallel train session lab)
list(TRANSFORM rooms PREPEND norma_ OUTPUT_VARIABLE room_targets)
install(TARGETS ${room_targets} norma_norma norma_plugin EXPORT normaTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET norma)
  install(TARGETS norma RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(DIRECTORY recipes DESTINATION ${CMAKE_INSTALL_DATADIR}/norma FILES_MATCHING PATTERN "*.toml")
endif()
set(headers "${CMAKE_INSTALL_INCLUDEDIR}")
if(NOT IS_ABSOLUTE "${headers}")
  set(headers "\${CMAKE_INSTALL_PREFIX}/${headers}")
endif()
install(CODE "set(source \"${PROJECT_SOURCE_DIR}\")
set(destination \"${headers}\")")
install(SCRIPT cmake/install_headers.cmake)
# Programs in this tree write <norma/norma.h> like everybody else, and <norma/lab/lab.h>; those with kernels,
# <norma/core/cuda/kernel.h>. No path of this clone is in these, so that a compiler cache serves all clones.
foreach(header norma.h lab/lab.h core/cuda/kernel.h)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/include/norma/${header}
       CONTENT "#include <@header@>\n" @ONLY)
endforeach()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/norma)
install(EXPORT normaTargets NAMESPACE norma:: DESTINATION ${package_dir})
configure_package_config_file(cmake/normaConfig.cmake.in ${PROJECT_BINARY_DIR}/normaConfig.cmake
                              INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/normaConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/normaConfig.cmake ${PROJECT_BINARY_DIR}/normaConfigVersion.cmake cmake/FindoneDNN.cmake
              cmake/FindCUDNN.cmake cmake/FindNCCL.cmake cmake/FindJPEGTurbo.cmake cmake/FindWebP.cmake cmake/FindZip.cmake
              cmake/found_library.cmake cmake/nvidia_in_python.cmake
        DESTINATION ${package_dir})
