#include "virtual_gpu/kernels.h"

#include "virtual_gpu/fatbin.h"

#include <cxxabi.h>

#include <cstdlib>

namespace virtual_gpu {
namespace {

std::string demangled(const char* mangled) {
  int status = 0;
  char* text = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  std::string result = status == 0 ? text : mangled;
  std::free(text);
  return result;
}

/// Machine code runs on GPUs of its own generation that are not older than it.
bool runs_machine_code(const Properties& gpu, int capability) {
  return capability / 10 == gpu.major && capability % 10 <= gpu.minor;
}

/// A driver compiles PTX for GPUs that are not older than it.
bool compiles_ptx(const Properties& gpu, int capability) {
  return capability <= 10 * gpu.major + gpu.minor;
}

}  // namespace

Kernels& kernels() {
  // Never destroyed: the program unregisters its kernels after static objects are gone.
  static auto* const instance = new Kernels;
  return *instance;
}

FatBinary& Kernels::add_binary(const std::byte* blob) {
  FatBinary& result = binaries_[blob];
  result.blob = blob;
  return result;
}

void Kernels::add_kernel(FatBinary& binary, const void* host_function, const char* mangled) {
  RegisteredKernel& kernel = kernels_[host_function];
  kernel.binary = &binary;
  kernel.mangled = mangled;
  kernel.name = demangled(mangled);
}

RegisteredKernel* Kernels::find(const void* host_function) {
  const auto found = kernels_.find(host_function);
  return found == kernels_.end() ? nullptr : &found->second;
}

Kernels::Load Kernels::load(RegisteredKernel& kernel, const Properties& properties, Memory& memory) {
  FatBinary& binary = *kernel.binary;
  if (binary.module == nullptr) {
    // A real GPU takes machine code for it, else the newest PTX that its driver can compile. What runs here is always
    // PTX, whichever there is: nvcc makes the same of one source for each GPU, but for what a kernel asks for itself.
    const FatEntry* code = nullptr;
    const FatEntry* ptx = nullptr;
    bool has_image = false;
    const std::vector<FatEntry> entries = entries_of(binary.blob);
    for (const FatEntry& entry : entries) {
      if (entry.kind == FatEntry::Kind::kPtx) {
        has_image |= compiles_ptx(properties, entry.capability);
        ptx = &entry;
      } else if (runs_machine_code(properties, entry.capability) &&
                 (code == nullptr || code->capability < entry.capability)) {
        has_image = true;
        code = &entry;
      }
    }
    if (!has_image || ptx == nullptr) {
      return Load::kNoImage;
    }
    if (memory.allocate((code != nullptr ? code : ptx)->bytes.size()) == 0) {
      return Load::kNoMemory;
    }
    if (code != nullptr) {
      binary.resources = resources_of(code->bytes);
    }
    std::string text(reinterpret_cast<const char*>(ptx->bytes.data()), ptx->bytes.size());
    text.resize(text.find_last_not_of('\0') + 1);
    binary.module = std::make_unique<Module>(std::move(text));
  }
  if (!kernel.loaded) {
    kernel.resources = binary.resources[kernel.mangled];
    kernel.loaded = true;
  }
  return Load::kDone;
}

}  // namespace virtual_gpu
