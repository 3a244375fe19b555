#include "parity/program.h"

#include <fstream>
#include <iostream>

// run_programs PROGRAMS.json RESULTS.json [DEVICE]: runs each program of a list, with its inputs on the device, and
// writes the list of results.

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    std::cerr << "usage: run_programs PROGRAMS.json RESULTS.json [DEVICE]\n";
    return 2;
  }
  const norma::Device device = argc == 4 ? norma::device_from_string(argv[3]) : norma::default_device();
  nlohmann::json results = nlohmann::json::array();
  for (const nlohmann::json& program : nlohmann::json::parse(std::ifstream(argv[1]))) {
    results.push_back(norma::test::run_program(program, device));
  }
  std::ofstream file(argv[2]);
  file << results << '\n';
  return file.good() ? 0 : 1;
}
