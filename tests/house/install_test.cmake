# cmake -DBUILD=DIR -DWORK=DIR -DVERSION=X.Y.Z … -P install_test.cmake: installs the build into a folder of its own,
# then configures, builds and runs a user's program that knows nothing but find_package(norma), and the README's example.
cmake_minimum_required(VERSION 3.25)

function(step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE err)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${ARGN}\nexit code ${code}\n${out}${err}")
  endif()
  set(output "${out}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK})
step(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
file(READ ${SOURCE}/README.md readme)
string(REGEX MATCH "```cpp\n([^`]*)```" unused "${readme}")
file(WRITE ${WORK}/readme.cpp "${CMAKE_MATCH_1}")
step(${CMAKE_COMMAND} -G ${GENERATOR} -S ${CMAKE_CURRENT_LIST_DIR}/consumer -B ${WORK}/build
     -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_PREFIX_PATH=${WORK}/prefix
     -DEXPECTED_VERSION=${VERSION} -DREADME_EXAMPLE=${WORK}/readme.cpp)
step(${CMAKE_COMMAND} --build ${WORK}/build)
step(${WORK}/build/consumer)
if(NOT output STREQUAL "norma ${VERSION}: 2 2\n")
  message(FATAL_ERROR "expected \"norma ${VERSION}: 2 2\", got \"${output}\"")
endif()
step(${WORK}/build/readme)
if(NOT output MATCHES "^loss [0-9.]+\n.*conv2d[^\n]* [1-9][0-9.]* [KM]iB\n")
  message(FATAL_ERROR "the README's example printed \"${output}\"")
endif()
# Headers of kernels are nobody's but Norma's.
file(GLOB_RECURSE private RELATIVE ${WORK}/prefix/include ${WORK}/prefix/include/norma/*.h)
list(LENGTH private installed)
if(installed LESS 50)
  message(FATAL_ERROR "expected the public headers, got ${installed}: ${private}")
endif()
list(FILTER private INCLUDE REGEX "/(cpu|cuda|emulated)/|kernels\\.h$")
if(private)
  message(FATAL_ERROR "private headers are installed: ${private}")
endif()
if(EXISTS ${WORK}/prefix/bin/norma AND NOT EXISTS ${WORK}/prefix/share/norma/recipes/resnet50_a3.toml)
  message(FATAL_ERROR "the recipes are not installed")
endif()

# What the program makes of its own help.
if(EXISTS ${WORK}/prefix/bin/norma)
  foreach(name man/man1/norma.1 bash-completion/completions/norma zsh/site-functions/_norma
               fish/vendor_completions.d/norma.fish)
    file(STRINGS ${WORK}/prefix/share/${name} found REGEX "batch(\\\\)?-size" LIMIT_COUNT 1)
    if(NOT found)
      message(FATAL_ERROR "share/${name} does not know --batch-size")
    endif()
  endforeach()
endif()

# A user's norm, which the installed program loads.
step(${CMAKE_COMMAND} -G ${GENERATOR} -S ${SOURCE}/examples/my_norm -B ${WORK}/my_norm
     -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_PREFIX_PATH=${WORK}/prefix)
step(${CMAKE_COMMAND} --build ${WORK}/my_norm)
if(EXISTS ${WORK}/prefix/bin/norma)
  step(${WORK}/prefix/bin/norma check-norm --norms absolute --plugin ${WORK}/my_norm/by_ops.so --quick --quiet)
  if(NOT output MATCHES "nothing is wrong")
    message(FATAL_ERROR "check-norm printed \"${output}\"")
  endif()
endif()

# No installed file may lead back to where it was built: no path may begin there.
file(GLOB_RECURSE configs ${WORK}/prefix/*.cmake)
foreach(config IN LISTS configs)
  file(STRINGS ${config} leaks REGEX "(^|[\" ;=])${SOURCE}/")
  if(leaks)
    message(FATAL_ERROR "${config} names the source folder: ${leaks}")
  endif()
endforeach()
