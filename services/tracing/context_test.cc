#include "services/tracing/context.h"

#include <string>

#include "gtest/gtest.h"

namespace skein::services {
namespace {

constexpr char kTrace[] = "0af7651916cd43dd8448eb211c80319c";
constexpr char kSpan[] = "b7ad6b7169203331";

std::string Parent(const std::string& version = "00", const std::string& trace = kTrace,
                   const std::string& span = kSpan, const std::string& flags = "01") {
  return version + "-" + trace + "-" + span + "-" + flags;
}

TEST(Traceparent, IsReadAndWrittenTheSame) {
  const auto parsed = ParseTraceparent(Parent());
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(Hex(parsed->trace), kTrace);
  EXPECT_EQ(HexOfSpan(parsed->span), kSpan);
  EXPECT_TRUE(parsed->sampled);
  EXPECT_EQ(FormatTraceparent(*parsed), Parent());
  EXPECT_FALSE(ParseTraceparent(Parent("00", kTrace, kSpan, "00"))->sampled);
  // Only the lowest flag means that; the others of version 00 are not passed on.
  EXPECT_EQ(FormatTraceparent(*ParseTraceparent(Parent("00", kTrace, kSpan, "02"))),
            Parent("00", kTrace, kSpan, "00"));
  EXPECT_EQ(HexOfSpan(1), "0000000000000001");
}

TEST(Traceparent, OfALaterVersionIsReadAsVersionZero) {
  EXPECT_TRUE(ParseTraceparent(Parent("cc")).has_value());
  EXPECT_TRUE(ParseTraceparent(Parent("cc") + "-what-comes").has_value());
  EXPECT_EQ(FormatTraceparent(*ParseTraceparent(Parent("01"))), Parent());
}

TEST(Traceparent, ThatIsMalformedIsNone) {
  for (const std::string& text : {std::string(),
                                  std::string("00"),
                                  Parent("ff"),
                                  Parent("0"),
                                  Parent("0g"),
                                  Parent("00") + "-",
                                  Parent() + "-more",
                                  Parent("cc") + "more",
                                  Parent("00", std::string(32, '0')),
                                  Parent("00", kTrace, std::string(16, '0')),
                                  Parent("00", "0AF7651916CD43DD8448EB211C80319C"),
                                  Parent("00", kTrace, "B7AD6B7169203331"),
                                  Parent("00", kTrace, kSpan, "0x"),
                                  Parent("00", kTrace, kSpan, "1"),
                                  " " + Parent(),
                                  Parent() + " ",
                                  Parent("00", std::string(kTrace).substr(1)),
                                  std::string(55, '-'),
                                  std::string(4096, '0'),
                                  Parent("00", std::string(31, 'a') + std::string(1, '\0'))}) {
    EXPECT_FALSE(ParseTraceparent(text).has_value()) << text;
  }
}

TEST(Tracestate, IsPassedOnIfItIsUsable) {
  EXPECT_EQ(UsableTracestate("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"),
            "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE");
  EXPECT_EQ(UsableTracestate("a=1, ,b=2"), "a=1, ,b=2");
  EXPECT_EQ(UsableTracestate("tenant@system=1 2"), "tenant@system=1 2");
  for (const std::string& text :
       {std::string("a"), std::string("=1"), std::string("a="), std::string("A=1"),
        std::string("a=1\r\nX: y"), std::string("a=b=c"), "a=" + std::string(600, '1')}) {
    EXPECT_EQ(UsableTracestate(text), "") << text;
  }
  std::string many;
  for (int i = 0; i < 33; ++i) many += (i == 0 ? "k" : ",k") + std::to_string(i) + "=1";
  EXPECT_EQ(UsableTracestate(many), "");
}

}  // namespace
}  // namespace skein::services
