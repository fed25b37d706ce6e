#include "services/openai/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>

namespace skein::services::openai {
namespace {

TEST(StopMatcherTest, HoldsBackWhatMayBecomeAStopString) {
  StopMatcher matcher({"###", "END"});
  EXPECT_EQ(matcher.Push("ab#"), "ab");
  EXPECT_EQ(matcher.Push("#c"), "##c");
  EXPECT_EQ(matcher.Push("xE"), "x");
  EXPECT_EQ(matcher.Push("N"), "");
  EXPECT_EQ(matcher.Push("Dyz"), "");
  ASSERT_TRUE(matcher.matched());
  EXPECT_EQ(matcher.match(), "END");
  EXPECT_EQ(matcher.Push("more"), "");
  EXPECT_EQ(matcher.Flush(), "");
}

// However long it is: nothing of a stop string is text, if it comes letter by letter.
TEST(StopMatcherTest, ALongStopStringIsHeldWhole) {
  const std::string stop = "<|end of the assistant's turn|>";
  StopMatcher matcher({"#", stop});
  std::string text = matcher.Push("Yes.");
  for (const char letter : stop) text += matcher.Push(std::string(1, letter));
  EXPECT_EQ(text, "Yes.");
  EXPECT_EQ(matcher.match(), stop);
  StopMatcher other({stop});
  text.clear();
  for (const char letter : stop.substr(0, 20) + "!") text += other.Push(std::string(1, letter));
  EXPECT_EQ(text, stop.substr(0, 20) + "!") << "it was another text";
}

TEST(StopMatcherTest, FlushGivesWhatWasHeld) {
  StopMatcher matcher({"\n\n"});
  EXPECT_EQ(matcher.Push("a\n"), "a");
  EXPECT_EQ(matcher.Flush(), "\n");
}

TEST(StopMatcherTest, IncludeAndEarliest) {
  StopMatcher matcher({"later", "b"}, true);
  EXPECT_EQ(matcher.Push("ab later"), "ab");
  EXPECT_EQ(matcher.match(), "b");
}

TEST(StopMatcherTest, OfTwoThatBeginTogetherTheFirstListedWins) {
  StopMatcher longer({"abc", "ab"}), shorter({"ab", "abc"}, true);
  EXPECT_EQ(longer.Push("xabc"), "x");
  EXPECT_EQ(longer.match(), "abc");
  EXPECT_EQ(shorter.Push("xabc"), "xab");
  EXPECT_EQ(shorter.match(), "ab");
}

TEST(StopMatcherTest, UncheckedPiecesPass) {
  StopMatcher matcher({"ab"});
  EXPECT_EQ(matcher.PushUnchecked("xab"), "xab");
  EXPECT_EQ(matcher.Push("a"), "");
  EXPECT_EQ(matcher.PushUnchecked("b"), "ab");
  EXPECT_FALSE(matcher.matched());
}

// A stop string as long as those of chat templates, in every three pieces.
TEST(StopMatcherTest, ALongStopStringIsHeldInWhole) {
  const std::string text = "yes<|end_of_the_answer|>no";
  for (size_t first = 0; first <= text.size(); ++first) {
    for (size_t second = first; second <= text.size(); ++second) {
      StopMatcher matcher({"<|end_of_the_answer|>", "<|end_of_the_question|>"});
      std::string out = matcher.Push(text.substr(0, first));
      out += matcher.Push(text.substr(first, second - first));
      out += matcher.Push(text.substr(second));
      EXPECT_EQ(out + matcher.Flush(), "yes") << first << " " << second;
      EXPECT_TRUE(matcher.matched()) << first << " " << second;
    }
  }
}

// However the text is cut, the output is the text before the first stop string.
TEST(StopMatcherTest, CutAnywhereGivesTheSame) {
  std::mt19937 random(7);
  const std::vector<std::string> stops = {"aab", "bb", "abab"};
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (size_t size = random() % 20; text.size() < size;) text += "ab"[random() % 2];
    size_t end = std::string::npos;
    for (const std::string& stop : stops) end = std::min(end, text.find(stop));
    StopMatcher matcher(stops);
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const size_t size = 1 + random() % 4;
      out += matcher.Push(std::string_view(text).substr(at, size));
      at += size;
    }
    out += matcher.Flush();
    EXPECT_EQ(out, text.substr(0, end)) << text;
    EXPECT_EQ(matcher.matched(), end != std::string::npos);
  }
}

}  // namespace
}  // namespace skein::services::openai
