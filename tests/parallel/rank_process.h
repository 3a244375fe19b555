#pragma once

#include <fmt/format.h>
#include <sys/types.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

namespace norma::test {

/// The process of a rank among those that mpirun has started in `folder`; 0 if it is not there.
inline pid_t process_of(const std::filesystem::path& folder, int rank) {
  const std::filesystem::path place = std::filesystem::canonical(folder);
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::error_code none;
    if (std::filesystem::read_symlink(entry.path() / "cwd", none) != place) {
      continue;
    }
    std::ifstream in(entry.path() / "environ", std::ios::binary);
    const std::string all((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    if (('\0' + all).find(fmt::format("{}OMPI_COMM_WORLD_RANK={}{}", '\0', rank, '\0')) != std::string::npos) {
      return std::stoi(entry.path().filename());
    }
  }
  return 0;
}

}  // namespace norma::test
