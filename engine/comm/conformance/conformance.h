// The fixture of the conformance suite, of every fabric whose ranks may be threads.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/comm/testing/ranks.h"

namespace skein::engine {

// The suite's fabrics are those of the library it is linked with: :conformance_fabrics (anywhere)
// or :gpu_conformance_fabrics.
std::vector<std::string> ConformanceFabrics();
FabricFactory ConformanceFactory(const std::string& name);
// Why this machine has not what a fabric needs; "" if it has.
std::string WhyNotConformance(const std::string& name);

// The parameter names a fabric.
class CommConformance : public testing::TestWithParam<std::string> {
 protected:
  CommConformance();
  void SetUp() override;

  // The ranks but `lost` make a group, and it works.
  static void ExpectSurvivorsWork(TestingRanks* ranks, int lost);

  const FabricFactory factory_;
};

}  // namespace skein::engine
