# cmake -DSCRIPT=walkthrough.cmake -DWORK=DIR -P this: the check accepts a good page and names each planted fault.
cmake_minimum_required(VERSION 3.25)

include(${CMAKE_CURRENT_LIST_DIR}/run_check.cmake)

# page(TREE TEXT): a tree with one source file and this page.
function(page tree text)
  file(WRITE ${WORK}/${tree}/a.cpp "void f() {\n  g();\n}\n")
  file(WRITE ${WORK}/${tree}/docs/walkthrough.md "${text}")
endfunction()

file(REMOVE_RECURSE ${WORK})
set(good "[a](../a.cpp) `f()` `g()` [a](../a.cpp) `f()` `g()` [a](../a.cpp) `f()` [a](../a.cpp) [a](../a.cpp)\n")
page(good "${good}")
run_check(good 0 "5 links and 5 functions checked")
page(file "${good}[b](../b.cpp)\n")
run_check(file 1 "names b.cpp, which does not exist")
page(function "${good}`h()`\n")
run_check(function 1 "names h() in a.cpp")
page(empty "nothing\n")
run_check(empty 1 "expected links and functions")
