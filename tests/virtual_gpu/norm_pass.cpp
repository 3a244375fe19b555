// Runs one norm once on one device, forward alone or with its backward pass, and times nothing. virtual_gpu.py counts
// what its kernels do.

#include <norma/norma.h>

#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace {

struct Options {
  std::string norm = "batch";
  std::vector<int64_t> shape = {8, 64, 56, 56};
  std::string dtype = "float32";
  std::string device = "cuda";
  bool channels_last = false;
  bool backward = false;
};

void run(const Options& options) {
  const norma::Device device = norma::device_from_string(options.device);
  const norma::DType dtype = norma::dtype_from_string(options.dtype);
  const auto format = options.channels_last ? norma::MemoryFormat::channels_last : norma::MemoryFormat::contiguous;
  // The host makes the numbers, so that the device runs the kernels of the norm and no others.
  const auto numbers = [&] {
    const norma::Tensor on_host = norma::randn(norma::Sizes(options.shape), {.device = norma::kCpu, .format = format});
    return norma::to(norma::to(on_host, dtype), device);
  };
  auto norm = norma::nn::make_norm(options.norm, options.shape[1]);
  norm->to(device);
  const norma::Tensor x = numbers().set_requires_grad();
  const norma::Tensor y = (*norm)(x);
  if (options.backward) {
    norma::backward(y, numbers());
  }
  norma::synchronize(device);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Runs one norm once on one device.");
  app.add_option("--norm", options.norm)->capture_default_str();
  app.add_option("--shape", options.shape, "batch size, channels, height, width")->expected(4)->delimiter(',');
  app.add_option("--dtype", options.dtype)->capture_default_str();
  app.add_option("--device", options.device)->capture_default_str();
  app.add_flag("--channels-last", options.channels_last);
  app.add_flag("--backward", options.backward);
  CLI11_PARSE(app, argc, argv);
  try {
    run(options);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "norm_pass: %s\n", e.what());
    return 1;
  }
}
