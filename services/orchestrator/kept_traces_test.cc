#include "services/orchestrator/kept_traces.h"

#include <gtest/gtest.h>

namespace skein::services {
namespace {

using Traces = std::vector<std::string>;

TEST(KeptTracesTest, EachStreamIsToldOnce) {
  KeptTraces kept;
  EXPECT_EQ(kept.TakeFor(1), Traces{});
  kept.Add("a");
  kept.Add("b");
  EXPECT_EQ(kept.TakeFor(1), (Traces{"a", "b"}));
  EXPECT_EQ(kept.TakeFor(1), Traces{});
  kept.Add("c");
  EXPECT_EQ(kept.TakeFor(1), Traces{"c"});
  EXPECT_EQ(kept.TakeFor(2), (Traces{"a", "b", "c"})) << "it came later";
  kept.Forget(1);
  EXPECT_EQ(kept.TakeFor(1), (Traces{"a", "b", "c"})) << "another stream of that number";
}

TEST(KeptTracesTest, TheOldestAreForgotten) {
  KeptTraces kept;
  for (size_t i = 0; i < KeptTraces::kTracesMax + 2; ++i) {
    kept.Add(std::to_string(i));
    if (i == 0) {
      EXPECT_EQ(kept.TakeFor(1), Traces{"0"});
    }
  }
  const Traces told = kept.TakeFor(1);
  EXPECT_EQ(told.size(), KeptTraces::kTracesMax);
  EXPECT_EQ(told.front(), "2") << "1 was forgotten before it was told";
}

}  // namespace
}  // namespace skein::services
