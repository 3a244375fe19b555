#pragma once

#include "core/device.h"

#include <nlohmann/json.hpp>

#include <vector>

namespace norma::test {

/// Runs a program of public ops, as tests/parity/random_programs.py makes them:
///   {"inputs": [{"sizes": […], "dtype": "float64", "layout": "contiguous", "grad": true, "values": […]}, …],
///    "steps": [{"op": "mul", "args": [0, 1], …options of the op…}, …], "outputs": [7, 9], "order": 2}
/// Variables are numbered: the inputs, then one for each step. The loss is the sum over the outputs v of
/// sum(v * (1 + v / 2) * cos(0, 1, 2, …)).
/// Result: {"values": {"y.7": […], "dx.0": […], "ddx.0": […], "ddx_create_graph.0": […]}, "strides": {"y.7": […]}},
/// where dx are the gradients of the inputs and ddx those of the sum of squares of dx (order 2), or {"error": "…"} for
/// what an op, or the backward pass, refuses. Numbers that are not finite are the texts "nan", "inf" and "-inf".
/// The inputs lie on `device`; new tensors that do not say where they lie, on the default device.
nlohmann::json run_program(const nlohmann::json& program, Device device = default_device());

/// The numbers of such a list.
std::vector<double> numbers_of(const nlohmann::json& list);

}  // namespace norma::test
