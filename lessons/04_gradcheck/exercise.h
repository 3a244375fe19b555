#pragma once

#include <cstddef>
#include <functional>
#include <vector>

/// A function of several numbers with one result.
using Function = std::function<double(const std::vector<double>& x)>;

/// The central difference of f at x along element number i, with a step of h: how steeply f follows x[i].
double central_difference(const Function& f, std::vector<double> x, std::size_t i, double h);

/// True iff a gradient is near enough to a difference: |gradient - difference| <= atol + rtol * |difference|. False if
/// one of them is NaN.
bool near_enough(double gradient, double difference, double atol, double rtol);

/// The numbers of the elements whose gradient is wrong, from the smallest to the largest; none if all are right.
/// `gradient` has an element for each of x. Takes steps of 1e-6, with atol = 1e-6 and rtol = 1e-4.
std::vector<std::size_t> wrong_elements(const Function& f, const std::vector<double>& x,
                                        const std::vector<double>& gradient);
