# cmake -DSCRIPT=include_direction.cmake -DWORK=DIR -P this: the check accepts a good tree and names each planted fault.
cmake_minimum_required(VERSION 3.25)

include(${CMAKE_CURRENT_LIST_DIR}/run_check.cmake)

file(REMOVE_RECURSE ${WORK})
file(WRITE ${WORK}/good/core/a.h "#include <vector>\n")
file(WRITE ${WORK}/good/nn/b.cpp "#include \"nn/b.h\"\n#include \"core/a.h\"\n")
run_check(good 0 "3 includes checked, 0 point the wrong way")

file(WRITE ${WORK}/downwards/core/a.cpp "#include \"core/a.h\"\n  #  include \"ops/b.h\"\n")
run_check(downwards 1 "core/a.cpp: core must not include ops (ops/b.h)")

file(WRITE ${WORK}/sideways/data/a.cu "#include <models/b.h>\n")
run_check(sideways 1 "data/a.cu: data must not include models (models/b.h)")

file(WRITE ${WORK}/lessons/lessons/01_a/a.cpp "#include \"a.h\"\n#include <norma/norma.h>\n#include \"core/a.h\"\n")
run_check(lessons 1 "lessons/01_a/a.cpp: lessons must not include core (core/a.h)")

file(WRITE ${WORK}/lab/train/a.cpp "#include \"lab/b.h\"\n")
run_check(lab 1 "train/a.cpp: train must not include lab (lab/b.h)")

file(WRITE ${WORK}/session/train/a.cpp "#include \"session/b.h\"\n")
run_check(session 1 "train/a.cpp: train must not include session (session/b.h)")

file(WRITE ${WORK}/relative/ops/norm/a.cpp "#include \"../../train/b.h\"\n")
run_check(relative 1 "ops/norm/a.cpp: write the include from the root (../../train/b.h)")

file(MAKE_DIRECTORY ${WORK}/empty/core)
run_check(empty 1 "nothing was checked")

file(WRITE ${WORK}/families/ops/norm/a.h "#include \"ops/reduce/b.h\"\n")
file(WRITE ${WORK}/families/ops/map_norm/a.h "#include \"ops/norm/a.h\"\n#include \"ops/norm/cpu/b.h\"\n")
file(WRITE ${WORK}/families/ops/reduce/b.h "#include \"ops/norm/a.h\"\n")
run_check(families 1 "ops/map_norm/a.h: the ops of map_norm must not include ops/norm/cpu/b.h")
run_check(families 1 "ops/reduce/b.h: the ops of reduce must not include ops/norm/a.h")
run_check(families 1 "4 includes checked, 2 point the wrong way")
