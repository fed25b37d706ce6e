// The conformance suite of Ops: every implementation against ReferenceOps, in tests by theme
// (elementwise_suite, matmul_suite, attention_suite), and within each test dtypes, odd sizes,
// strides, ragged batches and layouts. All data comes from a seeded generator. Tolerances are
// relative to the size of the sums involved, so they do not grow with the values.
//
// A backend takes part with one library that defines Implementations() and one cc_test that links
// it with the suites.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "engine/ops/conformance/host_buffer.h"
#include "engine/ops/ops.h"
#include "engine/ops/reference/reference_ops.h"
#include "gtest/gtest.h"

namespace skein::engine {

struct Implementation {
  std::string name;  // of the test's parameter: letters, digits and _
  // Ops over host memory; those of another device are behind StagedOps.
  std::function<std::unique_ptr<Ops>()> make;
  // One that must give the same bits where ops.h says "on any number of threads": it divides its
  // work otherwise.
  std::function<std::unique_ptr<Ops>()> make_otherwise_divided;
  // With f16 KV, attention rounds queries and weights to f16, as all may with bf16 KV (tensor cores
  // multiply nothing wider). Otherwise it is held to f32.
  bool attends_in_f16 = false;
};

// Defined by the backend that the test links.
std::vector<Implementation> Implementations();

inline void PrintTo(const Implementation& implementation, std::ostream* out) {
  *out << implementation.name;
}

inline std::string NameOfImplementation(const testing::TestParamInfo<Implementation>& info) {
  return info.param.name;
}

class OpsConformance : public testing::TestWithParam<Implementation> {
 protected:
  std::unique_ptr<Ops> ops_ = GetParam().make();
  ReferenceOps reference_;
  std::mt19937 random_{20260731};
};

}  // namespace skein::engine
