#include "core/emulated/races.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <iterator>

namespace norma::emulated {

namespace {

std::atomic<bool> watched{false};

}  // namespace

// By the program addr2line.
std::string source_line(const void* code) {
  Dl_info info;
  link_map* map = nullptr;
  if (dladdr1(code, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0 || map == nullptr) {
    return "";
  }
  std::error_code error;
  const std::string own = std::filesystem::read_symlink("/proc/self/exe", error).string();
  const std::string file = map->l_name == nullptr || *map->l_name == '\0' ? own : std::string(map->l_name);
  if (file.empty() || file.find('\'') != std::string::npos) {
    return "";
  }
  const auto offset = reinterpret_cast<uintptr_t>(code) - map->l_addr - 1;
  const std::string command = fmt::format("addr2line -i -e '{}' {:#x} 2>/dev/null", file, offset);
  std::string line;
  std::string found;
  // With what is inlined the innermost line comes first: that of Norma's header is left out.
  if (FILE* const pipe = popen(command.c_str(), "r"); pipe != nullptr) {
    for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) {
      if (c != '\n') {
        line += static_cast<char>(c);
        continue;
      }
      if (found.empty() && line.find("/kernel_emulated.h:") == std::string::npos) {
        found = line;
      }
      line.clear();
    }
    pclose(pipe);
  }
  found = found.substr(0, found.find(" (discriminator"));
  return found.empty() || found.find('?') != std::string::npos
             ? ""
             : fmt::format(" ({})", found.substr(found.rfind('/') + 1));
}

void Races::begin_launch(int threads) {
  threads_ = static_cast<uint32_t>(threads);
  now_ = 0;
  pages_.clear();
  last_ = nullptr;
  text_.clear();
  past_end_ = false;
  blocks_ = blocks_in_order();
  last_block_ = nullptr;
}

void Races::begin_block(int64_t block, const void* shared_memory, size_t shared_bytes) {
  block_ = static_cast<uint32_t>(block);
  shared_begin_ = reinterpret_cast<uintptr_t>(shared_memory);
  shared_.assign(shared_bytes, {});
  pass_barrier();
}

bool Races::is_shared(uintptr_t address) const {
  return address >= shared_begin_ && address < shared_begin_ + shared_.size();
}

Races::Byte& Races::byte_at(uintptr_t address) {
  if (is_shared(address)) {
    return shared_[address - shared_begin_];
  }
  const uintptr_t number = address / kPageBytes;
  if (last_ == nullptr || number != last_number_) {
    std::unique_ptr<Page>& page = pages_[number];
    if (page == nullptr) {
      page = std::make_unique<Page>();
    }
    last_ = page.get();
    last_number_ = number;
  }
  return (*last_)[address % kPageBytes];
}

/// Threads of one block are in order across a barrier; blocks never are.
bool Races::is_unordered(const Touch& other, uint32_t me) const {
  const bool same_block = other.who / threads_ == me / threads_;
  return other.who != me && other.time >= (same_block ? barrier_ : 1);
}

void Races::touch(int thread, const void* address, size_t bytes, bool write, const void* code) {
  const Touch mine{.time = now_, .who = block_ * threads_ + static_cast<uint32_t>(thread), .code = code};
  const auto begin = reinterpret_cast<uintptr_t>(address);
  if (!past_end_) {
    check_inside(mine, begin, bytes, write);
  }
  for (uintptr_t at = begin; at < begin + bytes; ++at) {
    Byte& byte = byte_at(at);
    if (!found() && is_unordered(byte.write, mine.who)) {
      report(byte.write, /* other_wrote= */ true, mine, write, bytes, begin);
    }
    if (write) {
      for (const Touch& read : byte.reads) {
        if (!found() && is_unordered(read, mine.who)) {
          report(read, /* other_wrote= */ false, mine, write, bytes, begin);
        }
      }
      byte.write = mine;
    } else {
      if (byte.reads[0].who != mine.who) {
        byte.reads[1] = byte.reads[0];
      }
      byte.reads[0] = mine;
    }
  }
}

/// Reports an access of the unused bytes after a tensor.
void Races::check_inside(const Touch& mine, uintptr_t address, size_t bytes, bool write) {
  const auto* const at = reinterpret_cast<const std::byte*>(address);
  if (bytes == 0) {
    return;
  }
  if (last_block_ == nullptr || at < last_block_->begin || at >= last_block_->end) {
    const auto after = std::upper_bound(blocks_.begin(), blocks_.end(), at,
                                        [](const std::byte* a, const Block& block) { return a < block.begin; });
    if (after == blocks_.begin() || at >= std::prev(after)->end) {
      return;  // memory of the host, such as the kernel's parameters
    }
    last_block_ = &*std::prev(after);
  }
  const auto offset = static_cast<size_t>(at - last_block_->begin);
  if (offset + bytes > last_block_->bytes) {
    text_ = fmt::format("thread {} of block {}{} {} number {} of a tensor that has {} (of {} bytes; the first is 0)",
                        mine.who % threads_, mine.who / threads_, source_line(mine.code), write ? "writes" : "reads",
                        offset / bytes, last_block_->bytes / bytes, bytes);
    // Near the next tensor it is rather a number below 0 of that one.
    const Block* const next = last_block_ + 1;
    const auto before = next == blocks_.data() + blocks_.size() ? offset : static_cast<size_t>(next->begin - at);
    if (before < offset - last_block_->bytes) {
      text_ += fmt::format(", or number -{} of the next one", (before + bytes - 1) / bytes);
    }
    past_end_ = true;
    race_found();
  }
}

void Races::report(const Touch& other, bool other_wrote, const Touch& mine, bool write, size_t bytes,
                   uintptr_t address) {
  const bool shared = is_shared(address);
  text_ = fmt::format(
      "race in {}: thread {} of block {}{} {} {} bytes{} that thread {} of block {}{} {}, and {}",
      shared ? "shared memory" : "global memory", mine.who % threads_, mine.who / threads_, source_line(mine.code),
      write ? "writes" : "reads", bytes, shared ? fmt::format(" at byte {}", address - shared_begin_) : std::string(),
      other.who % threads_, other.who / threads_, source_line(other.code), other_wrote ? "wrote" : "read",
      other.who / threads_ == mine.who / threads_ ? "no barrier is between" : "blocks have no order");
  race_found();
}

bool races_are_watched() {
  return watched;
}

[[gnu::noinline]] void race_found() {
  asm volatile("");  // so that no call of it is dropped
}

namespace detail {
namespace {
constinit thread_local const void* caller_of_all = nullptr;
}
void watch_races() {
  watched = true;
}
void enter_function(const void* caller) {
  caller_of_all = caller;
}
const void* last_caller() {
  return caller_of_all;
}
}  // namespace detail

}  // namespace norma::emulated
