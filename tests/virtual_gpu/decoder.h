#pragma once

#include "virtual_gpu/kernel.h"
#include "virtual_gpu/names.h"
#include "virtual_gpu/opcode.h"
#include "virtual_gpu/statements.h"

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace virtual_gpu {

/// Turns the text of one kernel into instructions. Registers are numbers until the end, when they get their places.
class Decoder {
 public:
  explicit Decoder(const ModuleParts& parts);
  std::unique_ptr<Module::Kernel> decode(std::string_view text);

 private:
  /// The names and labels of the kernel, or of a function where it is called.
  struct Frame {
    Names names;
    bool kernel = true;
    std::map<std::string_view, uint32_t> labels;
    std::vector<std::pair<uint32_t, std::string_view>> jumps;  ///< an instruction and its label
    std::vector<uint32_t> returns;                             ///< instructions that jump to the end
  };

  // decoder.cpp: declarations and the body
  void read_parameters(std::string_view list);
  void read_body(std::string_view body, Frame& frame);
  void read_location(std::string_view text);
  void read_directive(std::string_view text, Frame& frame);
  void read_registers(std::string_view text, Frame& frame);
  void call(std::vector<std::string_view> operands, const Frame& caller);
  void finish_jumps(const Frame& frame);
  void place_dynamic_shared();

  // decode.cpp: instructions
  void read_instruction(const Statement& statement, Frame& frame);
  bool read_control(const Opcode& opcode, const std::vector<std::string_view>& operands, Instruction& instruction,
                    Frame& frame);
  bool read_memory(const Opcode& opcode, const std::vector<std::string_view>& operands, Instruction& instruction,
                   const Frame& frame);
  bool read_parts(const Opcode& opcode, const std::vector<std::string_view>& operands, Instruction& instruction,
                  const Frame& frame);
  [[nodiscard]] Choice choose(const Opcode& opcode, const std::vector<std::string_view>& operands,
                              const Frame& frame) const;
  void use(const Opcode& opcode, const Choice& choice, const std::vector<std::string_view>& operands,
           Instruction& instruction, const Frame& frame);
  void add(const Instruction& instruction, std::string_view text);

  // operands.cpp
  Operand operand(std::string_view text, int bytes, const Frame& frame);
  Operand address(std::string_view text, Instruction& instruction, const Frame& frame);
  Operand special(std::string_view text);
  Operand constant(uint64_t bits, int bytes);
  Operand symbol_address(const Symbol& symbol, uint64_t offset, int bytes);
  [[nodiscard]] Symbol symbol(std::string_view name, const Frame& frame);
  [[nodiscard]] int bytes_of_register(std::string_view text, const Frame& frame) const;
  uint32_t new_register(uint8_t bytes, bool pinned = false);

  const ModuleParts& parts_;
  std::unique_ptr<Module::Kernel> kernel_;
  std::vector<uint8_t> register_bytes_;
  std::vector<bool> pinned_;
  std::map<std::pair<uint64_t, int>, Operand> constants_;
  std::map<Special, Operand> specials_;
  std::map<std::string, uint64_t, std::less<>> shared_offsets_;
  /// Constants that hold addresses of dynamic shared memory: where, bytes.
  std::vector<std::pair<Operand, int>> dynamic_constants_;
  uint64_t dynamic_alignment_ = 16;
  Source source_;
  int depth_ = 0;
};

}  // namespace virtual_gpu
