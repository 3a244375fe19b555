#include "virtual_gpu/fault.h"
#include "virtual_gpu/kernel.h"
#include "virtual_gpu/launch.h"
#include "virtual_gpu/names.h"
#include "virtual_gpu/statements.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <utility>

namespace virtual_gpu {

struct Module::Impl {
  explicit Impl(std::string ptx);

  std::mutex mutex;
  std::string text;
  ModuleParts parts;
  std::map<std::string, std::string_view, std::less<>> entries;
  std::map<std::string, std::unique_ptr<Kernel>, std::less<>> kernels;

 private:
  void read();
  void read_function(std::string_view& rest);
  void read_variable(std::string_view directive);
  void read_file(std::string_view line);
};

namespace {

/// The end of what the brace at the text's beginning opens.
size_t matching_brace(std::string_view text) {
  int depth = 0;
  for (size_t at = text.find_first_of("{}"); at != std::string_view::npos; at = text.find_first_of("{}", at + 1)) {
    depth += text[at] == '{' ? 1 : -1;
    if (depth == 0) {
      return at + 1;
    }
  }
  return text.size();
}

std::string_view take_until(std::string_view& rest, size_t end) {
  const std::string_view taken = rest.substr(0, end);
  rest.remove_prefix(std::min(taken.size(), rest.size()));
  return taken;
}

/// The name that stands before a function's parameters.
std::string_view function_name(std::string_view header) {
  header.remove_prefix(
      std::min(header.find(header.find(".entry") < header.find(".func") ? ".entry" : ".func"), header.size()));
  take_word(header);
  if (header.starts_with("(")) {  // what a function returns
    header.remove_prefix(std::min(header.find(')') + 1, header.size()));
    header = trimmed(header);
  }
  return trimmed(header.substr(0, header.find_first_of("( \t\r\n;{")));
}

}  // namespace

Module::Impl::Impl(std::string ptx) : text(std::move(ptx)) {
  parts.globals = std::make_shared<ModuleGlobals>();
  parts.files = std::make_shared<std::map<uint32_t, std::string>>();
  read();
}

void Module::Impl::read() {
  std::string_view rest = text;
  if (const size_t zero = rest.find('\0'); zero != std::string_view::npos) {
    rest = rest.substr(0, zero);
  }
  while (!(rest = trimmed(rest)).empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    if (rest.starts_with("//") || line.starts_with(".version") || line.starts_with(".target") ||
        line.starts_with(".address_size")) {
      take_until(rest, line.size());
    } else if (line.starts_with(".file")) {
      read_file(take_until(rest, line.size()));
    } else if (line.starts_with(".section")) {
      take_until(rest, rest.find('{'));
      take_until(rest, matching_brace(rest));
    } else if (line.find(".entry") != std::string_view::npos || line.find(".func") != std::string_view::npos) {
      read_function(rest);
    } else {
      const size_t end = rest.find(';');
      read_variable(take_until(rest, end));
      take_until(rest, 1);
    }
  }
}

void Module::Impl::read_function(std::string_view& rest) {
  const size_t brace = rest.find_first_of("{;");
  const std::string_view header = rest.substr(0, brace);
  const std::string name(function_name(header));
  if (brace == std::string_view::npos || rest[brace] == ';') {  // declared only
    take_until(rest, brace == std::string_view::npos ? brace : brace + 1);
    return;
  }
  const size_t end = brace + matching_brace(rest.substr(brace));
  const std::string_view whole = take_until(rest, end);
  if (const size_t entry = header.find(".entry"); entry != std::string_view::npos) {
    entries[name] = whole.substr(entry);
  } else {
    parts.functions[name] = whole.substr(header.find(".func"));
  }
}

void Module::Impl::read_variable(std::string_view directive) {
  std::string_view rest = directive;
  std::string_view word = take_word(rest);
  bool external = false;
  while (word == ".visible" || word == ".extern" || word == ".weak" || word == ".common") {
    external |= word == ".extern";
    word = take_word(rest);
  }
  if (word == ".shared") {
    const Declaration declaration = parse_declaration(rest);
    parts.shared[std::string(declaration.name)] = {declaration.bytes, declaration.alignment, external};
    return;
  }
  if (word != ".global" && word != ".const") {
    throw Fault(Fault::Kind::kUnsupported, fmt::format("PTX: {}", directive.substr(0, 200)));
  }
  const Declaration declaration = parse_declaration(rest);
  std::vector<std::byte>& bytes = parts.globals->bytes;
  const uint64_t offset = align_up(bytes.size(), std::max<uint64_t>(declaration.alignment, 16));
  parts.globals->offsets[std::string(declaration.name)] = offset;
  bytes.resize(offset + declaration.bytes);
  if (declaration.initial.empty()) {
    return;
  }
  std::string_view list = declaration.initial;
  list.remove_prefix(list.starts_with("{") ? 1 : 0);
  list.remove_suffix(list.ends_with("}") ? 1 : 0);
  const std::vector<std::string_view> values = split_operands(list);
  const uint64_t element = declaration.element_bytes;
  for (size_t k = 0; k < values.size(); ++k) {
    const std::optional<uint64_t> value = parse_integer(values[k]);
    if (!value || element * values.size() > declaration.bytes) {
      throw Fault(Fault::Kind::kUnsupported,
                  fmt::format("PTX: the initial value of {} is not a list of whole numbers", declaration.name));
    }
    for (uint64_t byte = 0; byte < element; ++byte) {
      bytes[offset + k * element + byte] = static_cast<std::byte>(*value >> (8 * byte));
    }
  }
}

void Module::Impl::read_file(std::string_view line) {
  take_word(line);
  const std::optional<uint64_t> number = parse_integer(take_word(line));
  const size_t begin = line.find('"');
  const size_t end = line.rfind('"');
  if (number && begin != std::string_view::npos && end > begin) {
    (*parts.files)[static_cast<uint32_t>(*number)] = std::string(line.substr(begin + 1, end - begin - 1));
  }
}

Module::Module(std::string ptx) : impl_(std::make_unique<Impl>(std::move(ptx))) {}
Module::~Module() = default;
Module::Module(Module&&) noexcept = default;
Module& Module::operator=(Module&&) noexcept = default;

const Module::Kernel& Module::kernel(const std::string& mangled_name) {
  const std::scoped_lock lock(impl_->mutex);
  std::unique_ptr<Kernel>& kernel = impl_->kernels[mangled_name];
  if (kernel == nullptr) {
    const auto found = impl_->entries.find(mangled_name);
    if (found == impl_->entries.end()) {
      impl_->kernels.erase(mangled_name);
      throw Fault(Fault::Kind::kUnsupported, fmt::format("the module has no kernel {}", demangled(mangled_name)));
    }
    const std::string name = demangled(mangled_name);
    try {
      kernel = decode_kernel(found->second, impl_->parts);
      kernel->name = name;
    } catch (const Fault& fault) {
      throw Fault(fault.kind(), fmt::format("{}: {}", name, fault.what()));
    }
  }
  return *kernel;
}

const std::vector<uint32_t>& Module::parameter_bytes(const std::string& mangled_name) {
  return kernel(mangled_name).parameter_bytes;
}

std::vector<std::string> Module::names() const {
  std::vector<std::string> names;
  for (const auto& [name, text] : impl_->entries) {
    names.push_back(name);
  }
  return names;
}

std::string demangled(const std::string& mangled_name) {
  int status = 0;
  char* const text = abi::__cxa_demangle(mangled_name.c_str(), nullptr, nullptr, &status);
  std::string name = status == 0 && text != nullptr ? text : mangled_name;
  std::free(text);
  return name;
}

}  // namespace virtual_gpu
