# cmake -DROOT=DIR -P op_places.cmake: fails unless the table of CONTRIBUTING.md, "Add an op", has all places of an op.
#
#  1. It has 8 rows at most, each a file.
#  2. A family that is there, pooling, stands in no other file of the product's rooms from base/ to export/: no file has a
#     line for each op, unless it is in the table.
cmake_minimum_required(VERSION 3.25)

set(most 8)
set(pattern "(avg|max)_pool2d|[a-z]*_pool\\(|PoolKernels")
set(users "^ops/families\\.cpp$|^nn/layers\\.h$")  # the list of families, and the layer made of an op

file(READ ${ROOT}/CONTRIBUTING.md text)
string(REGEX MATCH "## Add an op.*## Add a norm" text "${text}")
string(REGEX MATCHALL "\n\\| `[^`]+`" rows "${text}")
list(TRANSFORM rows REPLACE "\n\\| `([^`]+)`" "\\1")
list(LENGTH rows count)
if(count EQUAL 0 OR count GREATER most)
  message(SEND_ERROR "CONTRIBUTING.md: expected 1 to ${most} places of a new op, got ${count}")
endif()
foreach(place IN LISTS rows)
  if(NOT EXISTS ${ROOT}/${place})
    message(SEND_ERROR "CONTRIBUTING.md: ${place}: no such file")
  endif()
endforeach()

set(found 0)
foreach(room base core ops nn models export)
  file(GLOB_RECURSE files RELATIVE ${ROOT} ${ROOT}/${room}/*.h ${ROOT}/${room}/*.cpp ${ROOT}/${room}/*.cu)
  foreach(file IN LISTS files)
    file(READ ${ROOT}/${file} text)
    string(REGEX REPLACE "//[^\n]*" "" text "${text}")
    if(NOT text MATCHES "${pattern}")
      continue()
    endif()
    if(file IN_LIST rows)
      math(EXPR found "${found} + 1")
    elseif(NOT file MATCHES "${users}")
      message(SEND_ERROR "${file}: names an op of pooling, and is no place of CONTRIBUTING.md's table")
    endif()
  endforeach()
endforeach()
if(found LESS 6)
  message(SEND_ERROR "expected pooling in 6 places of the rooms, found ${found}")
endif()
