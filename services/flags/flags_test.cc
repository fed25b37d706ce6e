#include "services/flags/flags.h"

#include <fstream>

#include "gtest/gtest.h"
#include "services/base/version.h"

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
      v.Parse({"--port=x", "--nope=1", "--rate", "11", "--config", path.c_str(), "stray", "--host"},
              {{"SKEIN_DRAIN", "maybe"}});
  ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const std::string text(status.message());
  for (const char* part :
       {"--port: 'x' is not a whole number", "unknown flag '--nope'", "--host: needs a value",
        "--rate: '11' must be between 0 and 10", "unknown key 'prot'; did you mean 'port'?",
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

TEST(Flags, HelpShowsDefaultsWhateverWasParsed) {
  Values v;
  const absl::Status status = v.Parse({"--drain", "--port=1", "--help"});
  const std::string help(status.message());
  EXPECT_NE(help.find("--port PORT\n      port [default 8000; 0 to 65535; SKEIN_PORT]"),
            std::string::npos)
      << help;
  EXPECT_NE(help.find("drain [default false; SKEIN_DRAIN]"), std::string::npos) << help;
  EXPECT_EQ(help.find("default true"), std::string::npos) << help;
}

TEST(Flags, VersionIsAnsweredWhateverElseIsThere) {
  Values v;
  const absl::Status status = v.Parse({"--nope", "--version"});
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(status.message().substr(0, 12), std::string("skein ") + kVersion + " ");
}

TEST(Flags, AValueMayBeEmptyNegativeOrAfterTheLastFlag) {
  std::string node = "default";
  double offset = 0;
  std::string file;
  FlagSet flags("A test.");
  flags.String(&node, "node", "node");
  flags.Double(&offset, "offset", "offset", -10, 10);
  flags.Positional(&file, "FILE");
  const char* const arguments[] = {"test", "--node=", "--offset", "-1.5", "--", "--odd_name"};
  const absl::Status parsed = flags.Parse(6, arguments, {});
  ASSERT_TRUE(parsed.ok()) << parsed;
  EXPECT_EQ(node, "");
  EXPECT_EQ(offset, -1.5);
  EXPECT_EQ(file, "--odd_name");
}

TEST(Flags, RequiredFlagsChoicesAndWhatHoldsBetweenFlags) {
  std::string model, format = "table";
  int64_t low = 1, high = 2;
  const auto parse = [&](std::vector<const char*> arguments) {
    FlagSet flags("A test.");
    flags.String(&model, "model", "a model").Required();
    flags.String(&format, "format", "a format").OneOf({"table", "json"});
    flags.Int(&low, "low", "low", 0, 9);
    flags.Int(&high, "high", "high", 0, 9);
    flags.Check([&]() -> absl::Status {
      if (low < high) return absl::OkStatus();
      return absl::InvalidArgumentError("--low: must be below --high");
    });
    arguments.insert(arguments.begin(), "test");
    return std::string(
        flags.Parse(static_cast<int>(arguments.size()), arguments.data(), {}).message());
  };
  EXPECT_EQ(parse({"--format", "jsn"}),
            "--format: 'jsn' is not one of table, json; did you mean 'json'?\n--model is required");
  EXPECT_EQ(parse({"--model="}), "--model is required");
  EXPECT_EQ(parse({"--model", "m", "--low=3"}), "--low: must be below --high");
  EXPECT_EQ(parse({"--model", "m", "--low=1", "--format=json"}), "");
}

TEST(Flags, AFileThatCannotBeReadOrHoldsMoreThanValuesIsNamed) {
  Values v;
  EXPECT_EQ(v.Parse({"--config=/nowhere.yaml"}).message(),
            "--config: '/nowhere.yaml': cannot be read");
  const std::string path = WriteConfig("host: {a: b}\n");
  EXPECT_EQ(v.Parse({"--config", path.c_str()}).message(),
            "--config: '" + path + "': host: is not a single value");
}

TEST(Flags, RepeatedFlagCollects) {
  Values v;
  ASSERT_TRUE(v.Parse({"--model", "x", "--model=y"}, {{"SKEIN_MODEL", "z"}}).ok());
  EXPECT_EQ(v.models, (std::vector<std::string>{"x", "y"}));
}

TEST(Flags, AVariableThatIsNearlyATwinIsFound) {
  int64_t bytes = 0, tokens = 0;
  std::string key;
  FlagSet flags("A test.");
  flags.Int(&bytes, "max-body-bytes", "bytes", 0, 100);
  flags.EnvironmentPrefix("TESTCTL_");
  flags.Int(&tokens, "max-tokens", "tokens", 0, 100);
  flags.String(&key, "key", "a key").Environment("SKEIN_KEY");
  const std::map<std::string, std::string> environment = {
      {"SKEIN_MAX_BODY_BYTE", "1"}, {"SKEIN_RUN_DIR", "/x"},      {"SKEIN_KEY", "k"},
      {"TESTCTL_MAX_TOKEN", "2"},   {"TESTCTL_MAX_TOKENS", "3"},  {"TESTCTL_SHARED", "/y"},
      {"TESTCTL_CONFGI", "z"},      {"TESTCTL_MAX_TOKENSS", "4"}, {"HOME", "/z"}};
  const char* const argv[] = {"test"};
  ASSERT_TRUE(flags.Parse(1, argv, environment).ok());
  EXPECT_EQ(tokens, 3);
  EXPECT_EQ(key, "k");
  std::string found;
  for (const auto& one : flags.MistypedVariables(environment)) {
    found += one.variable + ">" + one.closest + " ";
  }
  EXPECT_EQ(found,
            "TESTCTL_CONFGI>TESTCTL_CONFIG TESTCTL_MAX_TOKEN>TESTCTL_MAX_TOKENS "
            "TESTCTL_MAX_TOKENSS>TESTCTL_MAX_TOKENS ");
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
  EXPECT_NE(none.message().find("FILE is required"), absl::string_view::npos) << none;
  EXPECT_NE(none.message().find("SKEIN_NODE_SIZE: 'x'"), absl::string_view::npos) << none;
  EXPECT_NE(parse({"a", "b"}, &file).message().find("unexpected argument 'b'"),
            absl::string_view::npos);
}

TEST(Flags, ARepeatedPositionalTakesAllThatFollows) {
  const auto parse = [](std::vector<const char*> arguments, std::vector<std::string>* rest) {
    FlagSet flags("A test.");
    std::string file;
    int64_t size = 0;
    flags.Positional(&file, "FILE");
    flags.RepeatedPositional(rest, "INSTANCE", "One.");
    flags.Int(&size, "size", "a size", 0, 64);
    arguments.insert(arguments.begin(), "test");
    EXPECT_NE(flags.Help().find("FILE [INSTANCE...] [flags]"), std::string::npos) << flags.Help();
    return flags.Parse(static_cast<int>(arguments.size()), arguments.data(), {});
  };
  std::vector<std::string> rest;
  EXPECT_EQ(parse({"f"}, &rest).message(), "");
  EXPECT_TRUE(rest.empty());
  EXPECT_EQ(parse({"f", "1", "--size", "2", "decode-1", "--", "--x"}, &rest).message(), "");
  EXPECT_EQ(rest, (std::vector<std::string>{"1", "decode-1", "--x"}));
  rest.clear();
  EXPECT_NE(parse({"f", "1", "--nope"}, &rest).message().find("unknown flag '--nope'"),
            absl::string_view::npos);
}

}  // namespace
}  // namespace skein::services
