# norma_add_room(NAME [DEPENDS room…]): the library norma::NAME from every source file under NAME/.
#
# Files *.cu hold kernels. Where NORMA_EMULATED is on, the host's compiler compiles each for the device cuda-emulated,
# through a file of one line in the build folder, and nvcc for the device cuda where NORMA_CUDA is on. There
# *_cudart.cpp, *_cudnn.cpp and *_cublaslt.cpp are compiled, too. families.cpp names the tables of the devices there are.
# The suffix of a file names the library that does the work. A family has both conv_onednn.cpp and
# conv_onednn_stub.cpp: the first is compiled where oneDNN is there, the second where it is not; so _mpi, _nccl and _onnx.
# Files *_turbo.cpp (libjpeg-turbo), *_webp.cpp, *_tiff.cpp and *_gif.cpp have no stub: data/image_file.cpp knows.
function(norma_add_room name)
  cmake_parse_arguments(arg "" "" "DEPENDS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${name}/*.cpp)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${name}/*.h)
  file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${name}/*.cu)
  foreach(library ONEDNN JPEG_TURBO WEBP TIFF GIF MPI NCCL ONNX)
    string(TOLOWER ${library} suffix)
    string(REGEX REPLACE ".*_" "" suffix ${suffix})
    if(NORMA_HAVE_${library})
      list(FILTER sources EXCLUDE REGEX "_${suffix}_stub\\.cpp$")
    else()
      list(FILTER sources EXCLUDE REGEX "_${suffix}\\.cpp$")
    endif()
  endforeach()

  set_source_files_properties(${name}/families.cpp PROPERTIES SKIP_PRECOMPILE_HEADERS ON COMPILE_DEFINITIONS
    "$<$<BOOL:${NORMA_CUDA}>:NORMA_HAVE_CUDA>;$<$<BOOL:${NORMA_EMULATED}>:NORMA_HAVE_EMULATED>")
  if(NORMA_CUDA)
    list(APPEND sources ${kernels})
  else()
    list(FILTER sources EXCLUDE REGEX "_(cudart|cudnn|cublaslt)\\.cpp$")
  endif()
  if(NOT NORMA_EMULATED)
    list(FILTER sources EXCLUDE REGEX "_emulated\\.cpp$")
    set(kernels "")
  endif()
  foreach(kernel IN LISTS kernels)
    file(RELATIVE_PATH kernel ${PROJECT_SOURCE_DIR} ${kernel})
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/emulated/${kernel}.cpp CONTENT "#include \"${kernel}\"\n")
    list(APPEND sources ${PROJECT_BINARY_DIR}/emulated/${kernel}.cpp)
    set(kernel_options "")
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      # What a thread loads it uses under the same condition, on its number and theirs: GCC 14 cannot see that these stay.
      set(kernel_options -Wno-uninitialized -Wno-maybe-uninitialized)
    endif()
    if(NORMA_RACES)  # not the linker's option: core/emulated/race_hooks.cpp has the functions that are called
      list(APPEND kernel_options -fsanitize=thread -g1)
      set_source_files_properties(${PROJECT_BINARY_DIR}/emulated/${kernel}.cpp PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    endif()
    set_source_files_properties(${PROJECT_BINARY_DIR}/emulated/${kernel}.cpp PROPERTIES COMPILE_OPTIONS "${kernel_options}")
  endforeach()

  if(sources)
    add_library(norma_${name} STATIC ${sources} ${headers})
    set(visibility PUBLIC)
    norma_compile_options(norma_${name})
    # Headers that only our own sources include: a user of the installed library does not need them.
    target_link_libraries(norma_${name} PRIVATE ZLIB::ZLIB $<BUILD_INTERFACE:Eigen3::Eigen>
                                                $<BUILD_INTERFACE:nlohmann_json::nlohmann_json>)
    if(NORMA_HAVE_ONEDNN)
      target_link_libraries(norma_${name} PRIVATE DNNL::dnnl)
    endif()
    if(NORMA_CUDA)
      norma_use_cuda(norma_${name})
    endif()
  else()
    add_library(norma_${name} INTERFACE)
    set(visibility INTERFACE)
  endif()
  add_library(norma::${name} ALIAS norma_${name})
  set_target_properties(norma_${name} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(norma_${name} ${visibility} cxx_std_20)
  target_include_directories(norma_${name} ${visibility}
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
    $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/norma>)
  target_link_libraries(norma_${name} ${visibility} OpenMP::OpenMP_CXX fmt::fmt)
  foreach(room IN LISTS arg_DEPENDS)
    target_link_libraries(norma_${name} ${visibility} norma_${room})
  endforeach()
endfunction()

# norma_use_cuda(TARGET): links CUDA's libraries. Only the files that are named after one of them see its headers: all
# others have the same flags as in a build without CUDA, and ccache takes them over from one.
function(norma_use_cuda target)
  set(headers ${CUDAToolkit_INCLUDE_DIRS} ${CUDNN_INCLUDE_DIR})
  if(NORMA_HAVE_NCCL)
    list(APPEND headers ${NCCL_INCLUDE_DIR})
  endif()
  list(REMOVE_DUPLICATES headers)
  list(REMOVE_ITEM headers ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES})  # -isystem would move those behind the C++ headers
  target_include_directories(${target} SYSTEM PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:${headers}>")
  list(TRANSFORM headers PREPEND "-isystem;")
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "_(cudart|cudnn|cublaslt|nccl)(_test)?\\.cpp$")
  if(sources)
    set_property(SOURCE ${sources} APPEND PROPERTY COMPILE_OPTIONS ${headers})
  endif()
  foreach(library CUDA::cudart CUDNN::cudnn CUDA::cublasLt)
    target_link_libraries(${target} PRIVATE $<LINK_ONLY:${library}>)
  endforeach()
endfunction()

# norma_precompile(TARGET HEADER… | TARGET REUSE_FROM OTHER): what most of its files include. Every file still includes
# what it uses: lint reads them without (NORMA_PCH=OFF compiles them so).
function(norma_precompile target)
  if(NORMA_PCH AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    if(ARGV1 STREQUAL "REUSE_FROM")
      target_precompile_headers(${target} ${ARGN})
    else()
      target_precompile_headers(${target} PRIVATE ${ARGN})
    endif()
  endif()
endfunction()

# norma_embed(TARGET FILE HEADER FUNCTION): the text of a file is what a function gives, std::string_view FUNCTION(), which
# HEADER declares.
function(norma_embed target file header function)
  string(REGEX REPLACE "::[a-z_]+$" "" namespace ${function})
  string(REGEX REPLACE ".*::" "" name ${function})
  file(READ ${PROJECT_SOURCE_DIR}/${file} text)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${file})
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/embedded/${file}.cpp CONTENT "#include \"${header}\"

namespace ${namespace} {

std::string_view ${name}() {
  return R\"text(${text})text\";
}

}  // namespace ${namespace}
")
  target_sources(${target} PRIVATE ${PROJECT_BINARY_DIR}/embedded/${file}.cpp)
endfunction()

# norma_embed_files(TARGET PATTERN HEADER FUNCTION TYPE): likewise the names and texts of all files NAME.EXTENSION that match,
# as std::vector<TYPE> FUNCTION(); a TYPE is made of two std::string_view.
function(norma_embed_files target pattern header function type)
  string(REGEX REPLACE "::[a-z_]+$" "" namespace ${function})
  string(REGEX REPLACE ".*::" "" name ${function})
  file(GLOB files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/${pattern})
  set(entries "")
  foreach(file IN LISTS files)
    get_filename_component(stem ${file} NAME_WE)
    file(READ ${PROJECT_SOURCE_DIR}/${file} text)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${file})
    string(APPEND entries "      {\"${stem}\", R\"text(${text})text\"},\n")
  endforeach()
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/embedded/${name}.cpp CONTENT "#include \"${header}\"

namespace ${namespace} {

std::vector<${type}> ${name}() {
  return {
${entries}  };
}

}  // namespace ${namespace}
")
  target_sources(${target} PRIVATE ${PROJECT_BINARY_DIR}/embedded/${name}.cpp)
endfunction()

# norma_join(TARGET NUMBER BEFORE AFTER): of the target's sources, NUMBER are compiled as one, each between two texts, with a
# tail for its own names, NORMA_FILE. A source with options or definitions of its own stays alone. CMake's UNITY_BUILD
# names whole paths; these begin at the source folder, so that what one clone has compiled serves another (ccache).
function(norma_join target number before after)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "^/.*\\.cpp$")
  set(joined "")
  foreach(source IN LISTS sources)
    get_source_file_property(alone ${source} SKIP_UNITY_BUILD_INCLUSION)
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    get_source_file_property(definitions ${source} COMPILE_DEFINITIONS)
    if(NOT alone AND NOT options AND NOT definitions)
      list(APPEND joined ${source})
    endif()
  endforeach()
  set_source_files_properties(${joined} PROPERTIES HEADER_FILE_ONLY ON)
  while(joined)
    list(SUBLIST joined 0 ${number} sources)
    list(REMOVE_ITEM joined ${sources})
    set(text "")
    foreach(source IN LISTS sources)
      file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR} ${source})
      string(MAKE_C_IDENTIFIER ${path} tail)
      string(APPEND text "#undef NORMA_FILE\n#define NORMA_FILE ${tail}\n${before}\n#include \"${path}\"\n${after}\n")
    endforeach()
    set(file ${CMAKE_CURRENT_BINARY_DIR}/joined/${target}/${tail}.cpp)  # of the last one
    file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY)
    target_sources(${target} PRIVATE ${file})
  endwhile()
endfunction()

# norma_unite(TARGET [OWN NAME…]): with NORMA_UNITY, sixteen files are compiled as one, which reads their headers once.
# Kernels stay alone, as what is inlined there depends on what else is in a file. OWN are names that many files have for
# themselves, beside those of cmake/own_names.h.
function(norma_unite target)
  cmake_parse_arguments(arg "" "" "OWN" ${ARGN})
  if(NOT NORMA_UNITY)
    return()
  endif()
  set(before "#include \"cmake/own_names.h\"")
  foreach(name IN LISTS arg_OWN)
    string(APPEND before "\n#define ${name} NORMA_OWN(${name}, NORMA_FILE)")
  endforeach()
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR} ${source})
    if(path MATCHES "/(cpu|simd|cuda|emulated)/|_(cpu|kernels|eigen|onednn|winograd|reference)\\.cpp$|^core/parallel\\.cpp$")
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
  norma_join(${target} 16 "${before}" "")
  # Those who want warnings compile file by file. GCC takes new memory where it would tidy up.
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-w;SHELL:--param ggc-min-expand=200;SHELL:--param ggc-min-heapsize=600000>")
endfunction()

# norma_unite_tests(TARGET): likewise for tests, eight files as one. More names are several files' own than a list would
# hold, so each file is in a namespace; for that, what any of them includes comes first. Those that open a namespace of
# Norma's stay alone, and those that see CUDA's headers.
function(norma_unite_tests target)
  if(NOT NORMA_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    file(STRINGS ${source} apart REGEX "^(namespace norma|#undef HWY)" LIMIT_COUNT 1)
    if(apart OR source MATCHES "_(cudart|cudnn|cublaslt|nccl)_test\\.cpp$")
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      list(REMOVE_ITEM sources ${source})
    endif()
  endforeach()
  set(headers ${CMAKE_CURRENT_BINARY_DIR}/${target}_includes.h)
  add_custom_command(OUTPUT ${headers} DEPENDS ${sources} ${PROJECT_SOURCE_DIR}/cmake/includes_of.cmake VERBATIM
                     COMMAND ${CMAKE_COMMAND} "-DSOURCES=${sources}" -DOUTPUT=${headers}
                             -P ${PROJECT_SOURCE_DIR}/cmake/includes_of.cmake)
  target_sources(${target} PRIVATE ${headers})
  file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR} ${headers})
  norma_join(${target} 8 "#include \"${path}\"\nnamespace NORMA_FILE {" "}")
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-w>")
endfunction()

# norma_optimize_less(TARGET [EXCEPT FILE…]): -Og in release builds, which compiles in three quarters of the time of -O1. GCC
# 12 crashes where precompiled headers come from other flags than the file's, so the exceptions do without.
function(norma_optimize_less target)
  cmake_parse_arguments(arg "" "" "EXCEPT" ${ARGN})
  target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-Og>)
  set_source_files_properties(${arg_EXCEPT} PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Release>:-O3>
                              SKIP_PRECOMPILE_HEADERS ON)
endfunction()

# norma_check_kernels(TARGET): AddressSanitizer does not follow the scopes of objects on the stack, which are thousands in
# unrolled loops over vectors and take two thirds of the time of a sanitizer build. It watches null pointers and allocated
# memory without the checks of pointers by UBSan; alignment stays.
function(norma_check_kernels target)
  if(NORMA_SANITIZE MATCHES "undefined")
    target_compile_options(${target} PRIVATE -fno-sanitize-address-use-after-scope
                           -fno-sanitize=null,object-size,pointer-overflow,vptr)
  endif()
endfunction()

# norma_check_pointers_less(TARGET): without those, without alignment, and without AddressSanitizer's zones around objects
# on the stack, sanitizer builds compile in half the time. For code that has text, JSON and the objects of others in its
# hands, not memory of its own.
function(norma_check_pointers_less target)
  if(NORMA_SANITIZE MATCHES "undefined")
    target_compile_options(${target} PRIVATE -fno-sanitize=null,alignment,object-size,pointer-overflow,vptr
                           $<$<CXX_COMPILER_ID:GNU>:--param=asan-stack=0>)
  endif()
endfunction()

# Flags of every target that we compile.
function(norma_compile_options target)
  set(options -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
    -Wno-missing-field-initializers)  # designated initializers name what differs from the default
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # GCC 12's own AVX-512 headers trip this warning (GCC bug 105593) wherever Eigen is inlined.
    list(APPEND options -Wno-maybe-uninitialized)
  endif()
  if(NORMA_NATIVE)
    list(APPEND options -march=${NORMA_ARCHITECTURE})
    target_compile_definitions(${target} PRIVATE NORMA_SIMD_STATIC)  # core/simd/targets.h
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
      list(APPEND options -mprefer-vector-width=512)
      if(CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 12)
        # GCC 12 copies a struct that holds {2, 2, 0, 0} as {2, 2, 2, 2} when it moves 32 bytes at once
        # (tests/core/compiler_test.cpp). Pieces of 16 bytes are right; loops are vectorized as before.
        list(APPEND options -mmove-max=128 -mstore-max=128)
      endif()
    endif()
  endif()
  # Without AVX-512 a vector of 64 bytes has no agreed way through a call; ours are in inlined functions only.
  list(APPEND options -Wno-psabi)
  # Bits depend on what is written, not on what is inlined where: sums keep their order, and the compiler makes no
  # fused multiply-add of its own (core/simd/lanes.h has ours). Only errno and traps are given up.
  list(APPEND options -fno-math-errno -fno-trapping-math -ffp-contract=off)
  list(APPEND options -ffile-prefix-map=${PROJECT_SOURCE_DIR}=.)  # the same objects in every clone
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "STATIC_LIBRARY")  # which the Python module is made of
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    list(APPEND options -fno-semantic-interposition)  # functions are inlined as in a program
  endif()
  # Fuzz programs call readers. Kernels, which no bytes of a file reach, would take most of their build.
  if(NORMA_SANITIZE AND NOT (NORMA_BUILD_FUZZ AND target MATCHES "^norma_(ops|models)$"))
    list(APPEND options -fsanitize=${NORMA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(${target} PUBLIC -fsanitize=${NORMA_SANITIZE})
  endif()
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${options}>")
  target_link_libraries(${target} PRIVATE hwy::hwy)  # of all, as a definition of it has to be the same for precompiled headers
  # Eigen must not start threads of its own below our OpenMP loops.
  target_compile_definitions(${target} PRIVATE EIGEN_DONT_PARALLELIZE EIGEN_MPL2_ONLY)
  if(NORMA_CUDA)
    # nvcc, too, makes no fused multiply-add of its own. fmt takes it for an old compiler, which it is not, but it
    # cannot check formats.
    target_compile_options(${target} PRIVATE
      "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;--fmad=false;-lineinfo;-Xcompiler=-Wall,-Wextra>")
    target_compile_definitions(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:FMT_USE_CONSTEXPR=1;FMT_CONSTEVAL=>")
  endif()
endfunction()
