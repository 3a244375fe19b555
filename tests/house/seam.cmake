# cmake -DROOT=DIR -P seam.cmake: fails where a file of DIR decides by the device, reads memory without knowing whose it
# is, or makes a tensor on a device that it does not name.
#
#  1. Which device does the work is decided in core/by_device.h; core/device, core/copy, core/dlpack, core/upload and
#     core/tensor compare devices, because that is their work, and so do the groups of processes, whose messages leave a
#     device, and the door to NumPy, which has no other than the CPU. Nobody else does.
#  2. Of ops/, nn/ and models/, only kernels read memory: the files that a device or a library is named after.
#  3. What ops/ makes lies on a device that it names, not on the default device.
#  4. In ops/, an op records and traces through its frame, core/op.h: nobody reaches past it.
#  5. No reference outlives the KernelCall it came from: the device's memory is closed when that has gone.
cmake_minimum_required(VERSION 3.25)

set(may_decide "^core/(by_device|device|device_functions)\\.(h|cpp)$|^core/(copy|dlpack|tensor|upload)\\.cpp$|^core/(cuda|emulated)/")
string(APPEND may_decide "|^parallel/process_group_(mpi|nccl)\\.cpp$|^python/bindings/dlpack\\.cpp$")
set(may_read "_(cpu|onednn|eigen)\\.cpp$|/(cpu|cuda)/|^ops/libraries/")
set(decides "device\\.type|device\\(\\)\\.type|\\.type [=!]=|DeviceType::|[=!]= kCpu|is_host\\(")
set(reads "[.>]data<|raw_data\\(|storage\\(\\)->data\\(|[^a-z]\\*[a-z_.>-]+device_pointer|device_pointer<[a-z0-9_]+>\\(\\)\\(")
set(past_frame "[^a-z_](record_node|trace_op|is_tracing|autocast_state)[^a-z_]")
set(outlives "&[a-zA-Z_ ]*=[ \n]*[a-zA-Z_:\"()]*(kernels\\.at|\\.run)\\([^@]*")
set(makes "(empty|empty_strided|zeros|ones|full|scalar|arange|from_vector|rand|randn|randint|randperm)\\(")

set(faults 0)
set(checked 0)
function(report file text)
  string(REGEX REPLACE "[ \n]+" " " text "${text}")
  message(SEND_ERROR "${file}: ${text}")
  math(EXPR faults "${faults} + 1")
  set(faults ${faults} PARENT_SCOPE)
endfunction()

# report_line(FILE TEXT REGEX ALL): reports the line of ALL that has the regex. Only a file with a fault is searched for
# the whole line: at each place of a line, [^\n]* goes to its end and back.
function(report_line file text regex all)
  string(REGEX MATCH "[^\n]*(${regex})[^\n]*" line "${all}")
  report(${file} "${text}: ${line}")
  set(faults ${faults} PARENT_SCOPE)
endfunction()

foreach(folder base core ops nn models export data parallel train session lab cli python examples lessons benchmarks)
  file(GLOB_RECURSE files RELATIVE ${ROOT} ${ROOT}/${folder}/*.h ${ROOT}/${folder}/*.cpp)
  foreach(file IN LISTS files)
    math(EXPR checked "${checked} + 1")
    file(READ ${ROOT}/${file} text)
    string(REGEX REPLACE "//[^\n]*" "" text "${text}")
    # Signs that mean something to CMake's lists.
    string(REPLACE ";" "@" text "${text}")
    string(REPLACE "[" "(" text "${text}")
    string(REPLACE "]" ")" text "${text}")
    if(NOT file MATCHES "${may_decide}" AND text MATCHES "${decides}")
      report_line(${file} "decides by the device" "${decides}" "${text}")
    endif()
    if(file MATCHES "^(ops|nn|models)/" AND NOT file MATCHES "${may_read}" AND text MATCHES "${reads}")
      report_line(${file} "reads memory and knows no device" "${reads}" "${text}")
    endif()
    if(file MATCHES "^ops/" AND text MATCHES "${past_frame}")
      report_line(${file} "reaches past the frame of an op" "${past_frame}" "${text}")
    endif()
    if(text MATCHES "${outlives}")
      report(${file} "keeps a reference that outlives its kernel call: ${CMAKE_MATCH_0}")
    endif()
    if(file MATCHES "^ops/" AND NOT file MATCHES "${may_read}")
      # To the end of the statement: a call may take several lines, and options may have a name.
      string(REGEX MATCHALL "[^a-zA-Z0-9_.>:]${makes}[^@]*|TensorOptions [a-z_]+{[^@]*" calls "${text}")
      foreach(call IN LISTS calls)
        if(NOT call MATCHES "device|options[),]")
          report(${file} "makes a tensor and names no device: ${call}")
        endif()
      endforeach()
    endif()
  endforeach()
endforeach()

if(checked EQUAL 0)
  message(FATAL_ERROR "found no file under ${ROOT}: nothing was checked")
endif()
message(STATUS "${checked} files checked, ${faults} faults")
