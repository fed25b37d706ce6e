#include "services/console/merge_patch.h"

#include <random>
#include <string>

#include "gtest/gtest.h"

namespace skein::services {
namespace {

using Json = nlohmann::json;

class Histories : public ::testing::TestWithParam<int> {
 protected:
  int Below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  Json Value(int depth) {
    switch (Below(depth > 2 ? 3 : 5)) {
      case 0:
        return Below(4);
      case 1:
        return std::string(static_cast<size_t>(Below(3)), 'x');
      case 2:
        return Json::array({Below(3), Below(2)});
      default:
        return Object(depth + 1);
    }
  }

  Json Object(int depth) {
    Json object = Json::object();
    for (int i = Below(5); i > 0; --i) object["k" + std::to_string(Below(6))] = Value(depth);
    return object;
  }

  // Some members change, come and go.
  Json Changed(Json object) {
    for (int i = Below(4); i > 0; --i) {
      const std::string name = "k" + std::to_string(Below(6));
      if (Below(3) == 0) {
        object.erase(name);
      } else if (object.contains(name) && object[name].is_object()) {
        object[name] = Changed(object[name]);
      } else {
        object[name] = Value(1);
      }
    }
    return object;
  }

  std::mt19937 random_{static_cast<unsigned>(GetParam())};
};

// A page that has a snapshot of any moment, and each patch since, has the state.
TEST_P(Histories, ASnapshotAndThePatchesSinceAreTheState) {
  Json state = Object(0);
  Json early = state;  // opened at once
  Json late;           // opened in the middle
  for (int step = 0; step < 60; ++step) {
    const Json next = Changed(state);
    const Json patch = MergePatchOf(state, next);
    EXPECT_EQ(patch.empty(), state == next);
    early.merge_patch(patch);
    if (step > 30) late.merge_patch(patch);
    if (step == 30) late = next;
    state = next;
    ASSERT_EQ(early, state) << patch;
    if (step >= 30) {
      ASSERT_EQ(late, state) << patch;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Histories, ::testing::Range(0, 50));

TEST(MergePatch, HasOnlyWhatChanged) {
  const Json before = Json::parse(R"({"a":{"1":{"x":1,"y":2},"2":{"x":3}},"b":[1,2]})");
  const Json after = Json::parse(R"({"a":{"1":{"x":1,"y":5}},"b":[1,2,3],"c":{}})");
  EXPECT_EQ(MergePatchOf(before, after),
            Json::parse(R"({"a":{"1":{"y":5},"2":null},"b":[1,2,3],"c":{}})"));
}

TEST(KeepMoments, AMomentThatOnlyJittersStays) {
  const Json before = Json::parse(R"({"a":{"s_at_ms":5000,"n":1},"l":[{"s_at_ms":100}]})");
  Json after = Json::parse(R"({"a":{"s_at_ms":5400,"n":2},"l":[{"s_at_ms":90}]})");
  KeepMoments(before, &after);
  EXPECT_EQ(after, Json::parse(R"({"a":{"s_at_ms":5000,"n":2},"l":[{"s_at_ms":100}]})"));
  after = Json::parse(R"({"a":{"s_at_ms":6000,"n":1},"l":[{"s_at_ms":100},{"s_at_ms":101}]})");
  const Json moved = after;
  KeepMoments(before, &after);
  EXPECT_EQ(after, moved);
}

}  // namespace
}  // namespace skein::services
