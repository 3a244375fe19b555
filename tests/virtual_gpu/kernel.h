#pragma once

#include "virtual_gpu/launch.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace virtual_gpu {

constexpr int kLanes = 32;
constexpr uint32_t kAllLanes = 0xffffffff;
/// Behind a warp's registers, for the interpreter itself: three of 32 bits.
constexpr uint32_t kScratchBytes = 3 * kLanes * 4;

class Warp;
struct Instruction;

/// Does what one instruction does, for the lanes of `mask`. Where all living lanes of a warp are active, `mask` is
/// kAllLanes for instructions that touch registers only: the registers of dead lanes may hold anything.
using Handler = void (*)(Warp& warp, const Instruction& instruction, uint32_t mask);

/// Where an operand lies: an offset in bytes into the warp's registers, or, with kConstant, into the kernel's
/// constants. Either holds 32 lanes side by side; a predicate is one word with a bit for each lane.
using Operand = uint32_t;
constexpr Operand kConstant = 0x80000000;
constexpr Operand kNoOperand = 0x7fffffff;

/// What comes after an instruction.
enum class Flow : uint8_t {
  kNext,     ///< the next one
  kBranch,   ///< `immediate`, for the lanes of its guard
  kExit,     ///< nothing
  kBarrier,  ///< the next one, when all warps are there
};

/// The memory that an instruction names.
enum class Space : uint8_t { kNone, kGeneric, kGlobal, kShared, kLocal, kParameter };

/// How bytes that were never written go through an instruction (undefined.h).
enum class Follow : uint8_t { kAll, kMove, kSelect, kShuffle, kSplit, kJoin, kBytes, kAnd, kShiftLeft, kShiftRight };

/// One instruction, decoded once.
struct Instruction {
  Handler run = nullptr;
  std::array<Operand, 6> operands = {kNoOperand, kNoOperand, kNoOperand, kNoOperand, kNoOperand, kNoOperand};
  uint64_t immediate = 0;      ///< a branch's target, an address's displacement, or what a handler needs
  Operand guard = kNoOperand;  ///< a predicate
  uint32_t index = 0;          ///< its own place in the program
  Flow flow = Flow::kNext;
  bool guard_negated = false;
  bool registers_only = true;  ///< touches registers of its own lane only
  bool meets = false;          ///< waits for other lanes of its warp: those of its last operand, or all
  uint8_t outputs = 1;         ///< how many of the operands, the first ones, are written
  uint8_t operand_count = 0;
  uint8_t access_bytes = 0;   ///< of memory, by lane
  uint8_t element_bytes = 0;  ///< of these, by register; of a part where a value is split or joined
  bool wide_address = true;   ///< the register of the address has 64 bits
  Space space = Space::kNone;
  Follow undefined = Follow::kAll;
};

/// Where an instruction comes from.
struct Source {
  std::string text;   ///< "ld.global.v4.f32"
  uint32_t file = 0;  ///< of .loc
  uint32_t line = 0;
};

/// A value that the launch puts into the registers of each warp before it starts.
enum class Special : uint8_t {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kLane,
  kWarp
};

/// Global variables of a module: memory that no cudaMalloc made.
struct ModuleGlobals {
  std::vector<std::byte> bytes;
  std::map<std::string, uint64_t, std::less<>> offsets;
};

/// A kernel, ready to run.
struct Module::Kernel {
  std::string name;  ///< demangled
  std::vector<Instruction> code;
  std::vector<Source> sources;  ///< by instruction
  std::shared_ptr<const std::map<uint32_t, std::string>> files;
  std::shared_ptr<ModuleGlobals> globals;

  uint64_t register_bytes = 0;       ///< of a warp
  std::vector<std::byte> constants;  ///< 32 lanes each; the launch begins at a multiple of 64 bytes
  std::vector<std::pair<Special, Operand>> specials;

  std::vector<std::string> parameter_names;
  std::vector<uint32_t> parameter_offsets;
  std::vector<uint32_t> parameter_bytes;
  uint32_t all_parameter_bytes = 0;
  uint64_t static_shared_bytes = 0;
  uint64_t local_bytes = 0;  ///< of a thread
  int max_threads = 0;       ///< .maxntid, 0 without
};

/// Addresses of shared memory begin here, as on a GPU of compute capability 9.0, so that a null pointer faults.
constexpr uint64_t kSharedBegin = 1024;
/// Where shared and local memory lie among generic addresses, and a module's variables among global ones.
constexpr uint64_t kSharedWindow = uint64_t{1} << 60;
constexpr uint64_t kLocalWindow = uint64_t{2} << 60;
constexpr uint64_t kGlobalsBegin = uint64_t{3} << 60;

/// A variable in shared memory that a module declares outside of its kernels.
struct SharedVariable {
  uint64_t bytes = 0;
  uint64_t alignment = 1;
  bool dynamic = false;  ///< begins where a kernel's own shared memory ends
};

/// What a kernel can name besides its own.
struct ModuleParts {
  std::map<std::string, std::string_view, std::less<>> functions;  ///< the texts of .func, from ".func" on
  std::map<std::string, SharedVariable, std::less<>> shared;
  std::shared_ptr<ModuleGlobals> globals;
  std::shared_ptr<std::map<uint32_t, std::string>> files;
};

/// Decodes the kernel whose text begins at ".entry". Calls of functions are replaced by what the functions do. Throws
/// Fault (kUnsupported) that names the instruction.
std::unique_ptr<Module::Kernel> decode_kernel(std::string_view text, const ModuleParts& parts);

/// Gives each virtual register a place: two that are never alive at the same time share one.
/// `register_bytes` holds the size of each (0 for predicates), and `pinned` those that live all the time.
void place_registers(Module::Kernel& kernel, const std::vector<uint8_t>& register_bytes,
                     const std::vector<bool>& pinned);

}  // namespace virtual_gpu
