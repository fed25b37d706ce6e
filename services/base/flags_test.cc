#include "services/base/flags.h"

#include <fstream>

#include "gtest/gtest.h"

namespace skein::services {
namespace {

struct Values {
  std::string host = "127.0.0.1";
  int64_t port = 8000;
  double rate = 1.5;
  bool drain = false;
  std::vector<std::string> models;

  absl::Status Parse(std::vector<const char*> arguments,
                     std::map<std::string, std::string> environment = {}) {
    FlagSet flags("A test.");
    flags.String(&host, "host", "where to listen");
    flags.Int(&port, "port", "port", 0, 65535);
    flags.Double(&rate, "rate", "a rate", 0, 10);
    flags.Bool(&drain, "drain", "drain");
    flags.Strings(&models, "model", "models");
    arguments.insert(arguments.begin(), "test");
    absl::Status status =
        flags.Parse(static_cast<int>(arguments.size()), arguments.data(), environment);
    json = flags.EffectiveJson();
    return status;
  }
  std::string json;
};

std::string WriteConfig(const std::string& text) {
  const std::string path = ::testing::TempDir() + "/config.yaml";
  std::ofstream(path) << text;
  return path;
}

TEST(Flags, CommandLineWinsOverEnvironmentWinsOverFile) {
  const std::string path = WriteConfig("port: 1\nhost: file\nrate: 2.5\nmodel: [a, b]\n");
  Values v;
  ASSERT_TRUE(v.Parse({"--port=3", "--config", path.c_str(), "--drain"},
                      {{"SKEIN_PORT", "2"}, {"SKEIN_HOST", "environment"}})
                  .ok());
  EXPECT_EQ(v.port, 3);
  EXPECT_EQ(v.host, "environment");
  EXPECT_EQ(v.rate, 2.5);
  EXPECT_TRUE(v.drain);
  EXPECT_EQ(v.models, (std::vector<std::string>{"a", "b"}));
  EXPECT_NE(v.json.find("\"port\":3"), std::string::npos);
}

TEST(Flags, HyphensAndUnderscoresAreOne) {
  int64_t blocks = 0, bytes = 0, tokens = 0;
  FlagSet flags("A test.");
  flags.Int(&blocks, "max_blocks", "blocks", 0, 100);
  flags.Int(&bytes, "max-bytes", "bytes", 0, 100);
  flags.Int(&tokens, "max_tokens", "tokens", 0, 100);
  const std::string path = WriteConfig("max-tokens: 3\n");
  const char* const arguments[] = {"test", "--max-blocks=1", "--max_bytes",
                                   "2",    "--config",       path.c_str()};
  ASSERT_TRUE(flags.Parse(6, arguments, {}).ok());
  EXPECT_EQ(blocks, 1);
  EXPECT_EQ(bytes, 2);
  EXPECT_EQ(tokens, 3);
}

TEST(Flags, AllProblemsAreNamedAtOnce) {
  const std::string path = WriteConfig("prot: 1\n");
  Values v;
  const absl::Status status =
      v.Parse({"--port=x", "--nope=1", "--rate", "11", "--config", path.c_str(), "stray"},
              {{"SKEIN_DRAIN", "maybe"}});
  ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const std::string text(status.message());
  for (const char* part : {"--port: 'x' is not a whole number", "unknown flag '--nope'",
                           "--rate: '11' must be between 0 and 10", "unknown key 'prot'",
                           "unexpected argument 'stray'", "SKEIN_DRAIN: 'maybe'"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " not in:\n" << text;
  }
}

TEST(Flags, HelpNamesEnvironmentTwins) {
  Values v;
  const absl::Status status = v.Parse({"--help"});
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_NE(std::string(status.message()).find("SKEIN_PORT"), std::string::npos);
}

TEST(Flags, RepeatedFlagCollects) {
  Values v;
  ASSERT_TRUE(v.Parse({"--model", "x", "--model=y"}, {{"SKEIN_MODEL", "z"}}).ok());
  EXPECT_EQ(v.models, (std::vector<std::string>{"x", "y"}));
}

TEST(Flags, APositionalArgumentMustBeGivenOnce) {
  const auto parse = [](std::vector<const char*> arguments, std::string* file) {
    FlagSet flags("A test.");
    int64_t node_size = 8;
    flags.Positional(file, "FILE");
    flags.Int(&node_size, "node-size", "instances of a node", 1, 64);
    arguments.insert(arguments.begin(), "test");
    return flags.Parse(static_cast<int>(arguments.size()), arguments.data(),
                       {{"SKEIN_NODE_SIZE", "x"}});
  };
  std::string file;
  EXPECT_EQ(parse({"--node-size", "4", "a.csv"}, &file).message(), "");
  EXPECT_EQ(file, "a.csv");
  file.clear();
  const absl::Status none = parse({}, &file);
  EXPECT_NE(none.message().find("FILE is missing"), absl::string_view::npos) << none;
  EXPECT_NE(none.message().find("SKEIN_NODE_SIZE: 'x'"), absl::string_view::npos) << none;
  EXPECT_NE(parse({"a", "b"}, &file).message().find("unexpected argument 'b'"),
            absl::string_view::npos);
}

}  // namespace
}  // namespace skein::services
