#pragma once

#include <cstddef>
#include <vector>

/// Where an entry came from, and how steeply it follows.
struct Parent {
  std::size_t entry;  ///< its number on the tape
  double slope;       ///< by how much the result moves when this parent moves by 1, and no other does
};

struct Entry {
  double value = 0;
  std::vector<Parent> parents;
  double gradient = 0;  ///< what backward() finds
};

/// The entries in the order in which they were recorded: a parent stands before what was made from it.
struct Tape {
  std::vector<Entry> entries;

  /// Puts an entry at the end and returns its number. A leaf, such as a weight, has no parents.
  std::size_t record(double value, const std::vector<Parent>& parents = {});
};

/// Entries number a and b added up: both slopes are 1. This one is written.
std::size_t add(Tape& tape, std::size_t a, std::size_t b);

/// a / b. Records one entry with two parents, a first, and returns its number.
std::size_t divide(Tape& tape, std::size_t a, std::size_t b);

/// The hyperbolic tangent of a. Records one entry with one parent and returns its number.
std::size_t tanh_of(Tape& tape, std::size_t a);

/// Fills in the gradient of every entry: by how much the entry `root` moves when that entry moves by 1.
void backward(Tape& tape, std::size_t root);
