#include "services/tracing/options.h"

#include <vector>

#include "gtest/gtest.h"
#include "services/tracing/endpoint.h"

namespace skein::services {
namespace {

absl::Status ParseFlags(TracingOptions* options, std::vector<const char*> flags) {
  FlagSet set("A program.");
  set.Name("program");
  options->Register(&set);
  flags.insert(flags.begin(), "program");
  return set.Parse(static_cast<int>(flags.size()), flags.data(), {});
}

TEST(TracingOptions, TellTheTracerWhatToSample) {
  TracingOptions options;
  ASSERT_TRUE(ParseFlags(&options, {"--trace-endpoint=http://collector:4318", "--trace-ratio=0.25",
                                    "--trace-slow-ms=15"})
                  .ok());
  EXPECT_EQ(options.tracer().ratio, 0.25);
  EXPECT_EQ(options.tracer().slow_us, 15'000);
}

TEST(TracingOptions, RefuseAnEndpointThatIsNoneByName) {
  TracingOptions options;
  const absl::Status wrong = ParseFlags(&options, {"--trace-endpoint=collector:4318"});
  EXPECT_EQ(wrong.message(),
            "--trace-endpoint: 'collector:4318' is neither local nor http://HOST:PORT");
  EXPECT_FALSE(ParseFlags(&options, {"--trace-ratio=1.5"}).ok());
}

TEST(TraceEndpoint, NamesHostPortAndPath) {
  const auto plain = ParseTraceEndpoint("http://127.0.0.1:99");
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->address.host, "127.0.0.1");
  EXPECT_EQ(plain->address.port, 99);
  EXPECT_EQ(plain->target, "/v1/traces");
  EXPECT_EQ(ParseTraceEndpoint("http://collector")->address.port, 4318);
  EXPECT_EQ(ParseTraceEndpoint("http://[::1]")->address.host, "::1");
  EXPECT_EQ(ParseTraceEndpoint("http://[::1]:7")->address.port, 7);
  EXPECT_EQ(ParseTraceEndpoint("http://c:1/")->target, "/v1/traces");
  EXPECT_EQ(ParseTraceEndpoint("http://c:1/tenant/a")->target, "/tenant/a/v1/traces");
  EXPECT_EQ(ParseTraceEndpoint("http://c:1/v1/traces")->target, "/v1/traces");
  for (const char* wrong : {"", "c:1", "https://c:1", "http://", "http://c:0", "http://c:x",
                            "http://c:1/a b", "http://c:1/a?b", "http://c:1/a\r\nX: y"}) {
    EXPECT_FALSE(ParseTraceEndpoint(wrong).ok()) << wrong;
  }
}

}  // namespace
}  // namespace skein::services
