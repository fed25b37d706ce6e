// The seeds of failed_seeds.txt: none fails any more.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/sim/kinds.h"
#include "tests/sim/seed_main.h"

namespace skein::sim {
namespace {

TEST(FailedSeedsTest, NoneFailsAnyMore) {
  std::ifstream file("tests/sim/failed_seeds.txt");
  ASSERT_TRUE(file.is_open());
  int64_t worlds = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name;
    uint64_t seed = 0;
    if (!(words >> name)) continue;
    ASSERT_TRUE(words >> seed) << line;
    const auto kind = std::find_if(Kinds().begin(), Kinds().end(),
                                   [&name](const Kind& one) { return one.name == name; });
    ASSERT_NE(kind, Kinds().end()) << line;
    EXPECT_EQ(RunWorld(kind->make(seed)).violation, "") << line;
    ++worlds;
  }
  EXPECT_GT(worlds, 0);
}

}  // namespace
}  // namespace skein::sim

int main(int argc, char** argv) {
  return skein::sim::SeedMain(argc, argv, skein::sim::MakeScenario);
}
