#include "scheduler/orchestrator/explain/name_index.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace skein::scheduler {
namespace {

struct Named {
  std::vector<std::string> names;

  template <class Visit>
  void ForEachName(Visit visit) const {
    for (const std::string& name : names) visit(name);
  }
};

class NameIndexTest : public ::testing::Test {
 protected:
  std::vector<uint64_t> Find(const std::string& name, size_t limit = 10) const {
    std::vector<uint64_t> found;
    index_.ForEachLatest(name, [&](uint64_t number) {
      found.push_back(number);
      return found.size() < limit;
    });
    return found;
  }
  NameIndex index_;
};

TEST_F(NameIndexTest, FindsTheLatestFirstByAnyOfItsNames) {
  index_.Add(Named{{"shared", "one"}}, 1);
  index_.Add(Named{{"shared", "three"}}, 3);
  index_.Add(Named{{"shared", "two"}}, 2);
  EXPECT_EQ(Find("shared"), (std::vector<uint64_t>{3, 2, 1}));
  EXPECT_EQ(Find("two"), (std::vector<uint64_t>{2}));
  EXPECT_TRUE(Find("four").empty());
  EXPECT_TRUE(Find("").empty());
}

TEST_F(NameIndexTest, StopsWhenTheVisitorHasEnough) {
  for (uint64_t number = 1; number <= 9; ++number) index_.Add(Named{{"shared"}}, number);
  EXPECT_EQ(Find("shared", 2), (std::vector<uint64_t>{9, 8}));
}

TEST_F(NameIndexTest, ForgetsOneRequestAndKeepsOthersOfItsName) {
  const Named one{{"shared", "one"}};
  const Named twice{{"shared", "shared"}};
  index_.Add(one, 1);
  index_.Add(twice, 2);
  EXPECT_EQ(Find("shared"), (std::vector<uint64_t>{2, 1})) << "a repeated name counts once";
  index_.Remove(twice, 2);
  EXPECT_EQ(Find("shared"), (std::vector<uint64_t>{1}));
  index_.Remove(one, 7);  // it has another number
  EXPECT_EQ(Find("one"), (std::vector<uint64_t>{1}));
  index_.Remove(one, 1);
  EXPECT_TRUE(index_.empty());
}

}  // namespace
}  // namespace skein::scheduler
