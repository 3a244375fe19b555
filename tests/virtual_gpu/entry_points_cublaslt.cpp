#include "virtual_gpu/descriptions_cublaslt.h"
#include "virtual_gpu/matmul_cublaslt.h"
#include "virtual_gpu/refusal.h"
#include "virtual_gpu/registry.h"

#include <cublasLt.h>

#include <exception>
#include <string>

// cuBLASLt's entry points, as its header declares them.

namespace {

using namespace virtual_gpu;

/// What went wrong last on this thread. cuBLASLt has no function that tells more than its status, so the text of the
/// status carries it.
thread_local cublasStatus_t last_status = CUBLAS_STATUS_SUCCESS;
thread_local std::string last_text;

struct Handle {};

/// Never destroyed: objects of static lifetime may hold handles.
Registry<Handle>& handles() {
  static auto* const all = new Registry<Handle>;
  return *all;
}

void check_handle(cublasLtHandle_t handle, const char* call) {
  expect(handles().find(handle) != nullptr, CUBLAS_STATUS_NOT_INITIALIZED,
         "{}: handle: expected one of cublasLtCreate, got {}", call, handles().describe(handle));
}

template <class Work>
cublasStatus_t answer(const Work& work) {
  try {
    work();
    return CUBLAS_STATUS_SUCCESS;
  } catch (const Refusal<cublasStatus_t>& refusal) {
    last_status = refusal.status();
    last_text = refusal.what();
    return refusal.status();
  } catch (const std::exception& error) {  // the stream takes no work
    last_status = CUBLAS_STATUS_EXECUTION_FAILED;
    last_text = error.what();
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
}

template <class T>
T& not_null(T* pointer, const char* call) {
  expect(pointer != nullptr, CUBLAS_STATUS_INVALID_VALUE, "{}: expected room for the result, got null", call);
  return *pointer;
}

const char* text_of(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "the library was not initialized";
    case CUBLAS_STATUS_INVALID_VALUE: return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "the function failed to launch on the GPU";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "the functionality requested is not supported";
    default: return "a cublasStatus_t of which the virtual GPU has no text";
  }
}

}  // namespace

extern "C" {

size_t cublasLtGetVersion(void) {
  return CUBLAS_VERSION;
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  thread_local std::string text;
  text = text_of(status);
  if (status != CUBLAS_STATUS_SUCCESS && status == last_status) {
    text += ": " + last_text;
  }
  return text.c_str();
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return answer([&] { not_null(handle, "cublasLtCreate") = handles().create<cublasLtHandle_t>({}); });
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t leading) {
  return answer([&] {
    MatrixLayout made;
    made.type = type;
    made.rows = rows;
    made.columns = columns;
    made.leading = leading;
    not_null(layout, "cublasLtMatrixLayoutCreate") = create(made);
  });
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return answer([&] { destroy(layout); });
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                size_t bytes) {
  return answer([&] { set(description_of(layout, "cublasLtMatrixLayoutSetAttribute"), attribute, value, bytes); });
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  return answer([&] {
    MatmulDescription made;
    made.compute = compute;
    made.scale = scale;
    not_null(description, "cublasLtMatmulDescCreate") = create(made);
  });
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  return answer([&] { destroy(description); });
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t bytes) {
  return answer([&] { set(description_of(description, "cublasLtMatmulDescSetAttribute"), attribute, value, bytes); });
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return answer([&] { not_null(preference, "cublasLtMatmulPreferenceCreate") = create(MatmulPreference{}); });
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return answer([&] { destroy(preference); });
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t bytes) {
  return answer(
      [&] { set(description_of(preference, "cublasLtMatmulPreferenceSetAttribute"), attribute, value, bytes); });
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  return answer([&] {
    constexpr const char* kCall = "cublasLtMatmulAlgoGetHeuristic";
    check_handle(handle, kCall);
    expect(requested > 0, CUBLAS_STATUS_INVALID_VALUE, "{}: expected to be asked for at least 1 algorithm, got {}",
           kCall, requested);
    not_null(results, kCall);
    int& count = not_null(found, kCall);
    count = 0;
    const Product product = understand(description_of(description, kCall), description_of(a, "A"),
                                       description_of(b, "B"), description_of(c, "C"), description_of(d, "D"));
    for (const Algorithm& algorithm : algorithms_of(product, description_of(preference, kCall))) {
      if (count < requested) {
        results[count] = {};
        results[count].algo = packed(algorithm, product);
        results[count].workspaceSize = algorithm.workspace_bytes;
        results[count].state = CUBLAS_STATUS_SUCCESS;
        results[count].wavesCount = 1;
        ++count;
      }
    }
  });
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algo, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  return answer([&] {
    check_handle(handle, "cublasLtMatmul");
    const Product product =
        understand(description_of(description, "cublasLtMatmul"), description_of(a_layout, "A"),
                   description_of(b_layout, "B"), description_of(c_layout, "C"), description_of(d_layout, "D"));
    MatmulPreference anything;
    anything.workspace_bytes = workspace_bytes;
    const Algorithm algorithm = algo != nullptr ? unpacked(*algo, product) : algorithms_of(product, anything).front();
    multiply(product, algorithm,
             {.alpha = alpha,
              .a = a,
              .b = b,
              .beta = beta,
              .c = c,
              .d = d,
              .workspace = workspace,
              .workspace_bytes = workspace_bytes,
              .stream = stream});
  });
}

}  // extern "C"
