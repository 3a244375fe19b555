#include "parity/program.h"

#include <fstream>
#include <iostream>

// run_programs PROGRAMS.json RESULTS.json: runs each program of a list and writes the list of results.

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: run_programs PROGRAMS.json RESULTS.json\n";
    return 2;
  }
  nlohmann::json results = nlohmann::json::array();
  for (const nlohmann::json& program : nlohmann::json::parse(std::ifstream(argv[1]))) {
    results.push_back(norma::test::run_program(program));
  }
  std::ofstream file(argv[2]);
  file << results << '\n';
  return file.good() ? 0 : 1;
}
