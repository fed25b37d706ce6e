#include "engine/comm/conformance/conformance.h"

#include <vector>

#include "engine/comm/conformance/checks.h"

namespace skein::engine {

CommConformance::CommConformance() : factory_(ConformanceFactory(GetParam())) {}

void CommConformance::SetUp() {
  if (const std::string why = WhyNotConformance(GetParam()); !why.empty()) GTEST_SKIP() << why;
}

void CommConformance::ExpectSurvivorsWork(TestingRanks* ranks, int lost) {
  std::vector<int> survivors;
  for (int r = 0; r < ranks->Ranks(); ++r) {
    if (r != lost) survivors.push_back(r);
  }
  const auto group = ranks->Group(survivors);
  ExpectOk(TestingRanks::Run(group, CheckAllReduce));
}

INSTANTIATE_TEST_SUITE_P(Fabrics, CommConformance, testing::ValuesIn(ConformanceFabrics()),
                         [](const auto& info) { return info.param; });

}  // namespace skein::engine
