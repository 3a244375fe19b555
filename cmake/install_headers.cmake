# Runs while `cmake --install` does: installs norma.h, lab/lab.h, what kernels include, and each header that these include,
# directly or not, and no other.
# `source` is the tree, `destination` the folder of includes.
cmake_minimum_required(VERSION 3.25)

set(public norma.h lab/lab.h core/cuda/kernel.h)
set(queue ${public})
while(queue)
  list(POP_FRONT queue header)
  file(STRINGS ${source}/${header} includes REGEX "^#include \"[^\"]+\"")
  foreach(line IN LISTS includes)
    string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" included "${line}")
    if(NOT included IN_LIST public)
      list(APPEND public ${included})
      list(APPEND queue ${included})
    endif()
  endforeach()
endwhile()
foreach(header IN LISTS public)
  get_filename_component(folder ${header} DIRECTORY)
  file(INSTALL DESTINATION ${destination}/norma/${folder} TYPE FILE FILES ${source}/${header})
endforeach()
