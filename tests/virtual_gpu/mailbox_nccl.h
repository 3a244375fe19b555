#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace virtual_gpu {

/// Messages between the ranks of a communicator, which are processes of one machine: files in a folder. Nothing waits
/// here; who waits for another rank asks again.
class Mailbox {
 public:
  /// A new folder, among those of temporary files.
  static std::string make_folder();

  Mailbox(std::filesystem::path folder, int rank, int ranks);
  /// Takes back what nobody has taken; the last rank to do so removes the folder.
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  /// Leaves a word for all, under a name.
  void say(const std::string& name, std::string_view text);
  /// The words of all ranks; none until all have said theirs.
  [[nodiscard]] std::vector<std::string> said(const std::string& name) const;

  /// `number` counts the messages from one rank to another.
  void post(int to, uint64_t number, std::span<const std::byte> bytes);
  [[nodiscard]] bool is_taken(int to, uint64_t number) const;
  std::optional<std::vector<std::byte>> take(int from, uint64_t number);

 private:
  void write(const std::string& name, std::span<const std::byte> bytes);

  std::filesystem::path folder_;
  int rank_;
  int ranks_;
};

}  // namespace virtual_gpu
