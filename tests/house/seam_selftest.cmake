# cmake -DSCRIPT=seam.cmake -DWORK=DIR -P this: the check accepts a good tree and names each planted fault.
cmake_minimum_required(VERSION 3.25)

include(${CMAKE_CURRENT_LIST_DIR}/run_check.cmake)

# fault(NAME FILE TEXT EXPECTED): a tree with one file.
function(fault name file content expected)
  file(WRITE ${WORK}/${name}/${file} "${content}")
  run_check(${name} 1 "${expected}")
endfunction()

file(REMOVE_RECURSE ${WORK})
file(WRITE ${WORK}/good/core/by_device.h "switch (device.type) { case DeviceType::cpu: return 1; }\n")
file(WRITE ${WORK}/good/core/copy.cpp "if (!is_host(x.device())) { f(x[1]); }\n")
file(WRITE ${WORK}/good/ops/pool/pool_cpu.cpp "T* x = y.data<T>();\nauto z = zeros({2});\n")
file(WRITE ${WORK}/good/ops/pool/cpu/planes.cpp "T* x = y.data<T>();\n")
file(WRITE ${WORK}/good/ops/pool/pool.cpp
     "// x.data<T>() and zeros({2}) of a comment\nconst Tensor y =\n  empty({1, 2},\n        {.device = x.device()});\n"
     "const TensorOptions options{.dtype = d, .device = x.device()};\nreturn zeros({2}, options), y.device_pointer();\n"
     "if (xs.empty()) { return std::ranges::empty(xs); }\n"
     "const auto call = pool_kernels.at(\"pool\", x.device());\nconst Pool& pool = call->choose(c);\n"
     "const Pool& in_table = pool_kernels.table(\"pool\", x.device()).choose(c);\n")
file(WRITE ${WORK}/good/train/trainer.cpp "auto x = zeros({2}); *x.data<float>() = 1;\n")
run_check(good 0 "6 files checked, 0 faults")

foreach(text "x.device().type == y" "device.type" "DeviceType::cuda" "x.device() == kCpu" "is_host(x.device())")
  string(MAKE_C_IDENTIFIER "decides ${text}" name)
  fault(${name} nn/a.cpp "int f();\nif (${text}) {}\n" "nn/a.cpp: decides by the device: if (${text}) {}")
endforeach()
foreach(folder core nn models export data parallel train session lab cli python examples lessons benchmarks)
  fault(in_${folder} ${folder}/a.cpp "bool b = device.type == t;\n" "${folder}/a.cpp: decides by the device")
endforeach()
fault(parsing cli/run.cpp "bool b = device.type == t;\n" "cli/run.cpp: decides by the device")
foreach(text "x.data<float>()" "x->data<T>()" "x.raw_data()" "x.storage()->data()" "*x.device_pointer<T>()")
  string(MAKE_C_IDENTIFIER "reads ${text}" name)
  fault(${name} ops/pool/pool.cpp "f(${text})\n" "ops/pool/pool.cpp: reads memory and knows no device: f(${text})")
endforeach()
fault(layer nn/conv.h "int n = *x.data<int>();\n" "nn/conv.h: reads memory and knows no device")
foreach(text "zeros({2})" "empty(sizes, {.dtype = d})" "arange(3)" "from_vector(v, {2})" "randn({2},\n  {})")
  string(MAKE_C_IDENTIFIER "makes ${text}" name)
  string(REGEX REPLACE "[ \n]+" " " expected "${text}")
  fault(${name} ops/pool/pool.cpp "const Tensor y = ${text};\nauto d = x.device();\n"
        "ops/pool/pool.cpp: makes a tensor and names no device: ${expected}")
endforeach()
fault(options ops/pool/pool.cpp "const TensorOptions options{.dtype = d};\nauto d = x.device();\n"
      "makes a tensor and names no device: TensorOptions options{.dtype = d}")

fault(outlives ops/pool/pool.cpp "const Pool& pool =\n  kernels::pool_kernels.at(\"pool\", d)->choose(c);\n"
      "ops/pool/pool.cpp: keeps a reference that outlives its kernel call: & pool = kernels::pool_kernels.at(\"pool\", d)")

fault(runs ops/pool/pool.cpp "const Pool& pool = op.run(kernels::pool_kernels, x)->choose(c);\n"
      "ops/pool/pool.cpp: keeps a reference that outlives its kernel call: & pool = op.run(kernels::pool_kernels, x)")
foreach(text "record_node(op, {x}, y, {}, f)" "if (is_tracing()) {}" "trace_op(op, {x}, {y}, {})")
  string(MAKE_C_IDENTIFIER "past ${text}" name)
  fault(${name} ops/pool/pool.cpp "int f();\n  ${text}\n" "ops/pool/pool.cpp: reaches past the frame of an op: ${text}")
endforeach()

file(MAKE_DIRECTORY ${WORK}/none/core)
run_check(none 1 "nothing was checked")
