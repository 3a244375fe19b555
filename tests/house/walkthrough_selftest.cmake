# cmake -DSCRIPT=walkthrough.cmake -DWORK=DIR -P this: the check accepts a good page and names each planted fault.
cmake_minimum_required(VERSION 3.25)

include(${CMAKE_CURRENT_LIST_DIR}/run_check.cmake)

# page(TREE TEXT): a tree with one source file and this page.
function(page tree text)
  file(WRITE ${WORK}/${tree}/a.cpp "void f() {\n  g();\n}\n")
  file(WRITE ${WORK}/${tree}/docs/walkthrough.md "${text}")
endfunction()

file(REMOVE_RECURSE ${WORK})
set(good "## Forward\n[a](../a.cpp) `f()` `g()` [a](../a.cpp) `f()` `g()` [a](../a.cpp) `f()` [a](../a.cpp) [a](../a.cpp)\n## Another device\n")
page(good "${good}")
run_check(good 0 "5 links and 5 functions checked, a path of 1 files")
page(file "${good}[b](../b.cpp)\n")
run_check(file 1 "names b.cpp, which does not exist")
page(function "${good}`h()`\n")
run_check(function 1 "names h() in a.cpp")
page(empty "nothing\n")
run_check(empty 1 "expected links and functions")
set(links "")
foreach(i RANGE 1 15)
  string(APPEND links "[a${i}](../a${i}.cpp) ")
  file(WRITE ${WORK}/long/a${i}.cpp "\n")
endforeach()
string(REPLACE "## Another" "${links}\n## Another" long "${good}")
page(long "${long}")
run_check(long 1 "expected a path of at most 14 files, got 16")
