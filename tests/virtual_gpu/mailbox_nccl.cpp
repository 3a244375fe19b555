#include "virtual_gpu/mailbox_nccl.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <fstream>
#include <iterator>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace virtual_gpu {

namespace {

std::string message_name(int from, int to, uint64_t number) {
  return fmt::format("message {} {} {}", from, to, number);
}

std::optional<std::string> content_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    return std::nullopt;
  }
  return std::string((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
}

}  // namespace

std::string Mailbox::make_folder() {
  std::string name = (std::filesystem::temp_directory_path() / "virtual-nccl-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) {
    throw std::system_error(errno, std::generic_category(), name);
  }
  return name;
}

Mailbox::Mailbox(std::filesystem::path folder, int rank, int ranks)
    : folder_(std::move(folder)), rank_(rank), ranks_(ranks) {}

Mailbox::~Mailbox() {
  std::error_code none;  // others remove files meanwhile
  const std::string own = fmt::format("message {} ", rank_);
  std::vector<std::filesystem::path> untaken;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, none)) {
    if (entry.path().filename().string().starts_with(own)) {
      untaken.push_back(entry.path());
    }
  }
  for (const auto& file : untaken) {
    std::filesystem::remove(file, none);
  }
  try {
    say("gone", "");
  } catch (const std::exception&) {
    return;  // somebody has removed the folder
  }
  if (!said("gone").empty()) {
    std::filesystem::remove_all(folder_, none);
  }
}

void Mailbox::write(const std::string& name, std::span<const std::byte> bytes) {
  const std::filesystem::path unfinished = folder_ / fmt::format("unfinished {} {}", rank_, name);
  std::ofstream out(unfinished, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) {
    throw std::runtime_error(fmt::format("cannot write {}", unfinished.string()));
  }
  std::filesystem::rename(unfinished, folder_ / name);  // whoever sees it sees all of it
}

void Mailbox::say(const std::string& name, std::string_view text) {
  write(fmt::format("{} {}", name, rank_), std::as_bytes(std::span(text)));
}

std::vector<std::string> Mailbox::said(const std::string& name) const {
  std::vector<std::string> all;
  for (int rank = 0; rank < ranks_; ++rank) {
    std::optional<std::string> text = content_of(folder_ / fmt::format("{} {}", name, rank));
    if (!text) {
      return {};
    }
    all.push_back(std::move(*text));
  }
  return all;
}

void Mailbox::post(int to, uint64_t number, std::span<const std::byte> bytes) {
  write(message_name(rank_, to, number), bytes);
}

bool Mailbox::is_taken(int to, uint64_t number) const {
  return !std::filesystem::exists(folder_ / message_name(rank_, to, number));
}

std::optional<std::vector<std::byte>> Mailbox::take(int from, uint64_t number) {
  const std::filesystem::path file = folder_ / message_name(from, rank_, number);
  const std::optional<std::string> text = content_of(file);
  if (!text) {
    return std::nullopt;
  }
  std::filesystem::remove(file);
  const auto bytes = std::as_bytes(std::span(*text));
  return std::vector<std::byte>(bytes.begin(), bytes.end());
}

}  // namespace virtual_gpu
