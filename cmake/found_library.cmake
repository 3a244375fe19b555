# What the Find modules here share.
include(FindPackageHandleStandardArgs)

# norma_version_in(OUT HEADER PREFIX): OUT becomes "1.2.3", by the header's "#define PREFIX_MAJOR 1", …_MINOR and …_PATCH or
# …_PATCHLEVEL. It stays as it is where there is no header.
function(norma_version_in out header prefix)
  if(EXISTS "${header}")
    file(STRINGS "${header}" lines REGEX "#define ${prefix}_(MAJOR|MINOR|PATCH|PATCHLEVEL) ")
    string(REGEX REPLACE ".*MAJOR +([0-9]+).*MINOR +([0-9]+).*PATCH(LEVEL)? +([0-9]+).*" "\\1.\\2.\\4" version "${lines}")
    set(${out} "${version}" PARENT_SCOPE)
  endif()
endfunction()

# norma_found_library(NAME TARGET [INCLUDES folder…] [LINKS library…] [REQUIRES variable…]): the end of FindNAME.cmake, which
# has looked for NAME_LIBRARY and NAME_INCLUDE_DIR and may have set NAME_VERSION. Sets NAME_FOUND, which REQUIRES needs, too,
# and makes the target. INCLUDES and LINKS come beside the folder and the library.
macro(norma_found_library name target)
  cmake_parse_arguments(found "" "" "INCLUDES;LINKS;REQUIRES" ${ARGN})
  find_package_handle_standard_args(${name} REQUIRED_VARS ${name}_LIBRARY ${name}_INCLUDE_DIR ${found_REQUIRES}
                                    VERSION_VAR ${name}_VERSION)
  mark_as_advanced(${name}_LIBRARY ${name}_INCLUDE_DIR)
  if(${name}_FOUND AND NOT TARGET ${target})
    add_library(${target} UNKNOWN IMPORTED)
    set_target_properties(${target} PROPERTIES IMPORTED_LOCATION "${${name}_LIBRARY}")
    target_include_directories(${target} INTERFACE "${${name}_INCLUDE_DIR}" ${found_INCLUDES})
    target_link_libraries(${target} INTERFACE ${found_LINKS})
  endif()
endmacro()
