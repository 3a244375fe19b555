# norma_nvidia_in_python(FOLDER LIBRARY PYTHON CUDA_MAJOR): sets FOLDER to where a Python environment has NVIDIA's package of
# cuDNN or NCCL, else to "". One for another CUDA than this major version is left alone, with a message: the program would load
# two runtimes of CUDA.
function(norma_nvidia_in_python folder library python cuda_major)
  string(TOLOWER ${library} name)
  set(${folder} "" PARENT_SCOPE)
  set(ask "
import importlib.metadata, nvidia.${name}
names = {d.metadata['Name'] for d in importlib.metadata.distributions()}
print(list(nvidia.${name}.__path__)[0])
print(';'.join(sorted(n for n in names if n and n.startswith('nvidia-${name}-cu'))))")
  execute_process(COMMAND ${python} -c "${ask}" OUTPUT_VARIABLE answer OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
                  RESULT_VARIABLE code)
  if(NOT code EQUAL 0 OR NOT answer MATCHES "^([^\n]+)\n?(.*)$")
    return()
  endif()
  set(found ${CMAKE_MATCH_1})
  set(packages ${CMAKE_MATCH_2})
  # A package without a name is what somebody has put there by hand. Of two, nobody knows whose files lie there.
  if(packages AND NOT packages STREQUAL "nvidia-${name}-cu${cuda_major}")
    list(JOIN packages " and " packages)
    message(STATUS "${library} in ${found} is left alone: it is of ${packages}, and the CUDA Toolkit is ${cuda_major} "
                   "(pip install nvidia-${name}-cu${cuda_major})")
    return()
  endif()
  set(${folder} ${found} PARENT_SCOPE)
endfunction()
