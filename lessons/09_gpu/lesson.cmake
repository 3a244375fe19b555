set(lesson_sources ${folder}/launches.cpp)
# The compiler calls a function of Norma before each access of a kernel, and so races are found
# (core/emulated/races.h). Not the linker's option, which would bring another library.
set_source_files_properties(${folder}/launches.cpp ${folder}/exercise.cpp ${folder}/solution.cpp PROPERTIES
                            COMPILE_OPTIONS "-fsanitize=thread;-g;-Og" SKIP_PRECOMPILE_HEADERS ON)
if(NORMA_SANITIZE)
  set(lesson_left_out "the compiler watches accesses for one sanitizer only")
  return()
endif()

# The page's session in gdb, where gdb may run a program.
find_program(NORMA_GDB gdb)
if(NORMA_GDB)
  execute_process(COMMAND ${NORMA_GDB} -batch -ex run --args ${CMAKE_COMMAND} -E true OUTPUT_VARIABLE said ERROR_QUIET)
endif()
if(said MATCHES "exited normally")
  add_test(NAME "lessons: a kernel is stepped in gdb"
           COMMAND ${NORMA_GDB} -batch -x ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/step.gdb ${CMAKE_CURRENT_BINARY_DIR}/lesson_09)
  set_tests_properties("lessons: a kernel is stepped in gdb" PROPERTIES LABELS lessons ENVIRONMENT OMP_NUM_THREADS=1
                       PASS_REGULAR_EXPRESSION "\\$1 = 32.*\\$2 = 24.*\\$3 = -nan.*\\$4 = 48.*\\$5 = 48")
else()
  message(STATUS "lessons: the session in gdb is not tested, as there is no gdb that may run a program")
endif()
