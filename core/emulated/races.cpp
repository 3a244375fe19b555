#include "core/emulated/races.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <string_view>

namespace norma::emulated {

namespace {

std::atomic<bool> watched{false};

/// "kernels.cpp:41" for an address after an instruction, by the program addr2line; "" where that knows nothing.
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
  const std::string command = fmt::format("addr2line -e '{}' {:#x} 2>/dev/null", file, offset);
  std::string line;
  if (FILE* const pipe = popen(command.c_str(), "r"); pipe != nullptr) {
    for (int c = std::fgetc(pipe); c != EOF && c != '\n'; c = std::fgetc(pipe)) {
      line += static_cast<char>(c);
    }
    pclose(pipe);
  }
  line = line.substr(0, line.find(" (discriminator"));
  return line.empty() || line.find('?') != std::string::npos ? "" : line.substr(line.rfind('/') + 1);
}

}  // namespace

void Races::begin_launch(int threads) {
  threads_ = static_cast<uint32_t>(threads);
  now_ = 0;
  pages_.clear();
  last_ = nullptr;
  text_.clear();
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

void Races::report(const Touch& other, bool other_wrote, const Touch& mine, bool write, size_t bytes,
                   uintptr_t address) {
  const bool shared = is_shared(address);
  const auto line = [](const Touch& touch) {
    const std::string text = source_line(touch.code);
    return text.empty() ? text : " (" + text + ")";
  };
  text_ = fmt::format("race in {}: thread {} of block {}{} {} {} bytes{} that thread {} of block {}{} {}, and {}",
                      shared ? "shared memory" : "global memory", mine.who % threads_, mine.who / threads_, line(mine),
                      write ? "writes" : "reads", bytes,
                      shared ? fmt::format(" at byte {}", address - shared_begin_) : std::string(),
                      other.who % threads_, other.who / threads_, line(other), other_wrote ? "wrote" : "read",
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
void watch_races() {
  watched = true;
}
}  // namespace detail

}  // namespace norma::emulated
