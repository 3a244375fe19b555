# cmake -DROOT=DIR -DWORK=DIR -DPYTHON=FILE -P nvidia_in_python_test.cmake: cuDNN and NCCL of Python environments, of which only those
# for the toolkit's CUDA will do.

# expect(WHAT CUDA_MAJOR FOUND MESSAGE PACKAGE…): an environment with these packages. `message` is what the function says.
function(expect what major found said)
  string(TOLOWER ${library} name)
  set(site ${WORK}/site)
  file(REMOVE_RECURSE ${site})
  file(MAKE_DIRECTORY ${site})
  if(NOT what STREQUAL "no package")
    file(MAKE_DIRECTORY ${site}/nvidia/${name})
  endif()
  foreach(package IN LISTS ARGN)
    string(REPLACE "-" "_" folder ${package})
    file(WRITE ${site}/${folder}-9.19.0.56.dist-info/METADATA "Metadata-Version: 2.1\nName: ${package}\nVersion: 9.19.0.56\n")
  endforeach()
  file(WRITE ${WORK}/ask.cmake "include(${ROOT}/cmake/nvidia_in_python.cmake)
set(ENV{PYTHONPATH} ${site})
norma_nvidia_in_python(folder ${library} ${PYTHON} ${major})
message(STATUS \"folder '\${folder}'\")
")
  execute_process(COMMAND ${CMAKE_COMMAND} -P ${WORK}/ask.cmake OUTPUT_VARIABLE printed ERROR_VARIABLE printed)
  set(folder "")
  if(found)
    set(folder ${site}/nvidia/${name})
  endif()
  string(REPLACE "SITE" ${site} said "${said}")
  set(expected "${said}-- folder '${folder}'\n")
  if(NOT printed STREQUAL expected)
    message(SEND_ERROR "${what}: expected\n${expected}got\n${printed}")
  endif()
endfunction()

foreach(library cuDNN NCCL)
  string(TOLOWER ${library} name)
  expect("no package" 13 NO "")
  expect("the toolkit's" 13 YES "" nvidia-${name}-cu13 nvidia-cublas)
  expect("put there by hand" 13 YES "")
  set(left "-- ${library} in SITE/nvidia/${name} is left alone: it is of")
  expect("of another CUDA" 13 NO
         "${left} nvidia-${name}-cu12, and the CUDA Toolkit is 13 (pip install nvidia-${name}-cu13)\n" nvidia-${name}-cu12)
  expect("of another CUDA, the other way round" 12 NO
         "${left} nvidia-${name}-cu13, and the CUDA Toolkit is 12 (pip install nvidia-${name}-cu12)\n" nvidia-${name}-cu13)
  expect("of two" 13 NO
         "${left} nvidia-${name}-cu12 and nvidia-${name}-cu13, and the CUDA Toolkit is 13 (pip install nvidia-${name}-cu13)\n"
         nvidia-${name}-cu12 nvidia-${name}-cu13)
endforeach()
