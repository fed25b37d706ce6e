#include "services/jobs/input_check.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace skein::services {
namespace {

constexpr char kEndpoint[] = "/v1/chat/completions";

std::string Request(const std::string& id, const std::string& model = "m",
                    const std::string& url = kEndpoint) {
  return absl::StrCat(R"({"custom_id": ")", id, R"(", "method": "POST", "url": ")", url,
                      R"(", "body": {"model": ")", model,
                      R"(", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 7}})");
}

InputCheck CheckOf(const std::string& text, size_t piece = 1 << 20) {
  InputCheck check(kEndpoint);
  for (size_t at = 0; at < text.size(); at += piece) check.Feed(text.substr(at, piece));
  check.End();
  return check;
}

// The first error as "line: code param".
std::string ErrorOf(const std::string& text) {
  const InputCheck check = CheckOf(text);
  if (check.errors().empty()) return "none";
  const v1::JobError& error = check.errors()[0];
  return absl::StrCat(error.line(), ": ", error.code(), " ", error.param());
}

TEST(InputCheck, FindsEachLineHoweverItsBytesCome) {
  const std::string text = absl::StrCat(Request("a"), "\n\n", Request("b"), "\r\n", Request("c"));
  for (const size_t piece : {size_t{1}, size_t{7}, text.size()}) {
    InputCheck check = CheckOf(text, piece);
    EXPECT_TRUE(check.errors().empty());
    EXPECT_EQ(check.lines(), 3u);
    EXPECT_EQ(check.model(), "m");
    const auto lines = check.TakeLines();
    ASSERT_EQ(lines.size(), 3u);
    EXPECT_EQ(lines[1].line, 3u) << "the empty line counts";
    EXPECT_EQ(lines[1].custom_id, "b");
    const auto body = BodyOfLine(text.substr(lines[2].at, lines[2].bytes));
    ASSERT_TRUE(body.ok());
    EXPECT_EQ(*body, R"({"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":7})");
  }
}

TEST(InputCheck, NamesWhatIsWrongWithTheLinesNumber) {
  const std::string good = Request("a") + "\n";
  EXPECT_EQ(ErrorOf(good + "{nonsense"), "2: invalid_json_line ");
  EXPECT_EQ(ErrorOf(good + "[1]"), "2: invalid_json_line ");
  EXPECT_EQ(ErrorOf(good + good), "2: duplicate_custom_id custom_id");
  EXPECT_EQ(ErrorOf(good + Request("b", "m", "/v1/completions")), "2: url_mismatch url");
  EXPECT_EQ(ErrorOf(good + Request("b", "other")), "2: model_mismatch body.model");
  const std::string longest(InputCheck::kNameBytesMax, 'x');  // errors and the job's status hold it
  EXPECT_EQ(ErrorOf(Request(longest, longest)), "none");
  EXPECT_EQ(ErrorOf(good + Request(longest + "x")), "2: invalid_value custom_id");
  EXPECT_EQ(ErrorOf(good + Request("b", longest + "x")), "2: invalid_value body.model");
  EXPECT_EQ(ErrorOf(R"({"custom_id": "a", "method": "GET", "url": "u", "body": {}})"),
            "1: invalid_value method");
  EXPECT_EQ(ErrorOf(R"({"method": "POST", "url": "u", "body": {}})"),
            "1: missing_required_parameter custom_id");
  EXPECT_EQ(ErrorOf(R"({"custom_id": 1, "method": "POST", "url": "u", "body": {}})"),
            "1: invalid_type custom_id");
  EXPECT_EQ(ErrorOf(absl::StrCat(R"({"custom_id": "a", "method": "POST", "url": ")", kEndpoint,
                                 R"(", "body": 3})")),
            "1: invalid_type body");
  EXPECT_EQ(ErrorOf(absl::StrCat(R"({"custom_id": "a", "method": "POST", "url": ")", kEndpoint,
                                 R"(", "body": {"messages": []}})")),
            "1: missing_required_parameter body.model");
}

TEST(InputCheck, RefusesFilesWithTooFewOrTooManyRequests) {
  EXPECT_EQ(ErrorOf(""), "0: empty_file ");
  EXPECT_EQ(ErrorOf(" \n\n"), "0: empty_file ");
  InputCheck check(kEndpoint);
  for (uint64_t line = 0; line <= InputCheck::kLinesMax; ++line) {
    check.Feed(Request(absl::StrCat(line)) + "\n");
    check.TakeLines();
  }
  ASSERT_EQ(check.errors().size(), 1u);
  EXPECT_EQ(check.errors()[0].code(), "too_many_tasks");
  EXPECT_TRUE(check.Ended());
}

TEST(InputCheck, RefusesLinesThatNoMessageCarries) {
  InputCheck check(kEndpoint);
  const std::string piece(1 << 20, 'x');
  for (int i = 0; i < 20; ++i) check.Feed(piece);
  check.Feed("\n" + Request("a") + "\n");
  check.End();
  ASSERT_EQ(check.errors().size(), 1u);
  EXPECT_EQ(check.errors()[0].code(), "invalid_json_line");
  EXPECT_EQ(check.errors()[0].line(), 1u);
}

TEST(InputCheck, StopsAfterManyErrors) {
  std::string text;
  for (int i = 0; i < 1000; ++i) absl::StrAppend(&text, "nonsense\n");
  EXPECT_EQ(CheckOf(text).errors().size(), InputCheck::kErrorsMax);
}

TEST(InputCheck, LinesWithOneSystemPromptHaveOnePrefix) {
  const auto line = [](const std::string& id, const std::string& system, const std::string& user) {
    return absl::StrCat(R"({"custom_id": ")", id, R"(", "method": "POST", "url": ")", kEndpoint,
                        R"(", "body": {"model": "m", "messages": [{"role": "system", "content": ")",
                        system, R"("}, {"role": "user", "content": ")", user, "\"}]}}\n");
  };
  const auto lines =
      CheckOf(line("a", "s", "x") + line("b", "s", "longer") + line("c", "t", "x")).TakeLines();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].prefix, lines[1].prefix);
  EXPECT_NE(lines[0].prefix, lines[2].prefix);
  EXPECT_GE(lines[1].tokens, lines[0].tokens);
}

}  // namespace
}  // namespace skein::services
