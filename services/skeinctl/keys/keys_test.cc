// Keys that are made fit the file, and are as long as they have to be.
#include "services/skeinctl/keys/keys.h"

#include <gtest/gtest.h>

#include <set>

#include "services/router/access/api_keys.h"

namespace skein::services {
namespace {

TEST(KeysTest, ANewKeysLineAdmitsItAndDoesNotHoldIt) {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    const std::string key = NewKey();
    EXPECT_EQ(key.size(), 3u + 43u) << key;
    EXPECT_TRUE(seen.insert(key).second);
    const std::string line = NewKeyLine(key, {.action = "new", .tenant = "a", .id = "k"});
    EXPECT_EQ(line.find(key), std::string::npos);
    const auto keys = ApiKeys::Parse(line);
    ASSERT_TRUE(keys.ok()) << keys.status();
    ASSERT_NE(keys->Find(key), nullptr);
    EXPECT_EQ(keys->Find(key)->tenant, "a");
    EXPECT_EQ(keys->Find(key)->id, "k");
  }
}

TEST(KeysTest, NamesAreChecked) {
  const auto parse = [](std::vector<const char*> arguments) {
    KeysFlags flags;
    FlagSet set;
    flags.Register(&set);
    arguments.insert(arguments.begin(), "keys");
    return set.Parse(static_cast<int>(arguments.size()), arguments.data(), {});
  };
  EXPECT_TRUE(parse({"new"}).ok());
  EXPECT_TRUE(parse({"new", "--tenant=a.b"}).ok());
  EXPECT_FALSE(parse({"new", "--tenant=a b"}).ok());
  EXPECT_FALSE(parse({"new", "--id=-k"}).ok());
  EXPECT_FALSE(parse({"old"}).ok());
}

}  // namespace
}  // namespace skein::services
