// Fused steps of the trainer for CPUs: what torch does slowly between its matrix products. fast_cpu.py builds and calls it.
//
// Tokens of all documents of a batch lie one after another; document n is rows starts[n] .. starts[n + 1]. Matrices are
// row-major; bf16 is uint16_t, the upper half of an f32; sums are f32. Attention is causal within a document.
// The backward pass recomputes the probabilities from the log-sum-exp (Dao et al. 2022, FlashAttention, Algorithm 4).

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define D HEAD_DIM
#define ROWS 8
typedef float V16 __attribute__((vector_size(64), aligned(4)));
typedef int32_t I16 __attribute__((vector_size(64)));

static inline float Load(uint16_t h) {
  union { uint32_t u; float f; } x = {(uint32_t)h << 16};
  return x.f;
}

static inline uint16_t Round(float f) {
  union { float f; uint32_t u; } x = {f};
  return (uint16_t)((x.u + 0x7fff + ((x.u >> 16) & 1)) >> 16);
}

// exp by 2^n * a polynomial of degree 5; relative error below 4e-6 for x <= 0. Vectorises.
static inline float Exp(float x) {
  x = x < -87.0f ? -87.0f : x;
  float n = floorf(x * 1.44269504f + 0.5f);
  float r = x - n * 0.693147181f;
  float p = 1.0f + r * (1.0f + r * (0.5f + r * (0.16666667f + r * (0.041666667f + r * 0.0083333333f))));
  union { int32_t i; float f; } s = {((int32_t)n + 127) << 23};
  return p * s.f;
}

static inline float Sigmoid(float x) {
  float e = Exp(-fabsf(x));
  return x >= 0 ? 1.0f / (1.0f + e) : e / (1.0f + e);
}

// Rotary embedding of one head in place; rotate-half form. sign -1 undoes it.
static inline void Rotate(float* x, const float* cos_row, const float* sin_row, float sign) {
  for (int i = 0; i < D / 2; ++i) {
    float a = x[i], b = x[i + D / 2], s = sign * sin_row[i];
    x[i] = a * cos_row[i] - b * s;
    x[i + D / 2] = b * cos_row[i] + a * s;
  }
}

typedef struct {
  const uint16_t* qkv;      // [tokens][(heads + 2 * kv_heads) * D]
  const int32_t* starts;    // [documents + 1]
  const float *cosines, *sines;  // [longest document][D / 2]
  int documents, heads, kv_heads, tokens;
} Batch;

// One document's rows of one head, as f32, rotated if `rotate`.
static void Unpack(const Batch* b, int first, int length, int column, int rotate, float* out) {
  int width = (b->heads + 2 * b->kv_heads) * D;
  for (int t = 0; t < length; ++t) {
    const uint16_t* row = b->qkv + (size_t)(first + t) * width + column;
    for (int i = 0; i < D; ++i) out[t * D + i] = Load(row[i]);
    if (rotate) Rotate(out + t * D, b->cosines + t * (D / 2), b->sines + t * (D / 2), 1.0f);
  }
}

static void Transpose(const float* x, int length, int stride, float* out) {
  for (int i = 0; i < D; ++i) {
    for (int t = 0; t < length; ++t) out[i * stride + t] = x[t * D + i];
    for (int t = length; t < stride; ++t) out[i * stride + t] = 0;
  }
}

// s[r][j] = sum_d a[r][d] * bt[d][j] for ROWS rows and j < columns (a multiple of 32).
static void RowsByColumns(const float* a, const float* bt, int stride, int columns, float* s) {
  for (int j = 0; j < columns; j += 32) {
    V16 acc[ROWS][2] = {0};
    for (int d = 0; d < D; ++d) {
      V16 k0 = *(const V16*)(bt + d * stride + j), k1 = *(const V16*)(bt + d * stride + j + 16);
      for (int r = 0; r < ROWS; ++r) {
        acc[r][0] += a[r * D + d] * k0;
        acc[r][1] += a[r * D + d] * k1;
      }
    }
    for (int r = 0; r < ROWS; ++r) {
      *(V16*)(s + r * stride + j) = acc[r][0];
      *(V16*)(s + r * stride + j + 16) = acc[r][1];
    }
  }
}

// out[r][d] += sum_j s[r][j] * b[j][d].
static void RowsByRows(const float* s, int stride, int columns, const float* b, float* out) {
  for (int d = 0; d < D; d += 16) {
    V16 acc[ROWS];
    for (int r = 0; r < ROWS; ++r) acc[r] = *(V16*)(out + r * D + d);
    for (int j = 0; j < columns; ++j) {
      V16 v = *(const V16*)(b + j * D + d);
      for (int r = 0; r < ROWS; ++r) acc[r] += s[r * stride + j] * v;
    }
    for (int r = 0; r < ROWS; ++r) *(V16*)(out + r * D + d) = acc[r];
  }
}

// out[j][d] += sum_r s[r][j] * a[r][d].
static void ColumnsByRows(const float* s, int stride, int columns, const float* a, float* out) {
  for (int d = 0; d < D; d += 16) {
    V16 rows[ROWS];
    for (int r = 0; r < ROWS; ++r) rows[r] = *(const V16*)(a + r * D + d);
    for (int j = 0; j < columns; ++j) {
      V16 acc = *(V16*)(out + j * D + d);
      for (int r = 0; r < ROWS; ++r) acc += s[r * stride + j] * rows[r];
      *(V16*)(out + j * D + d) = acc;
    }
  }
}

static int RoundUp(int n, int to) { return (n + to - 1) / to * to; }

static float* Floats(size_t n) { return aligned_alloc(64, RoundUp((int)(n * 4), 64)); }

// out: [tokens][heads * D] bf16; lse: [heads][tokens].
void AttentionForward(const uint16_t* qkv, const int32_t* starts, const float* cosines, const float* sines, int documents,
                      int heads, int kv_heads, int tokens, uint16_t* out, float* lse) {
  Batch b = {qkv, starts, cosines, sines, documents, heads, kv_heads, tokens};
  int group = heads / kv_heads;
  float scale = 1.0f / sqrtf(D);
  for (int task = documents * kv_heads - 1; task >= 0; --task) {
    int doc = task / kv_heads, g = task % kv_heads, first = starts[doc], length = starts[doc + 1] - first;
    int padded = RoundUp(length, 32);
    float *k = Floats(padded * D), *kt = Floats(padded * D), *v = Floats(padded * D), *q = Floats(padded * D);
    float *s = Floats(ROWS * padded), o[ROWS * D];
    Unpack(&b, first, length, (heads + g) * D, 1, k);
    Unpack(&b, first, length, (heads + kv_heads + g) * D, 0, v);
    Transpose(k, length, padded, kt);
    for (int h = g * group; h < (g + 1) * group; ++h) {
      memset(q, 0, sizeof(float) * padded * D);
      Unpack(&b, first, length, h * D, 1, q);
      for (int i = 0; i < length * D; ++i) q[i] *= scale;
      for (int t = 0; t < length; t += ROWS) {
        int last = t + ROWS < length ? t + ROWS : length;
        RowsByColumns(q + t * D, kt, padded, RoundUp(last, 32), s);
        float sums[ROWS];
        for (int r = 0; r < ROWS; ++r) {
          float* row = s + r * padded;
          int seen = t + r + 1 < length ? t + r + 1 : length;
          float top = -1e30f, sum = 0;
          for (int j = 0; j < seen; ++j) top = row[j] > top ? row[j] : top;
          for (int j = 0; j < seen; ++j) { row[j] = Exp(row[j] - top); sum += row[j]; }
          for (int j = seen; j < last; ++j) row[j] = 0;
          sums[r] = sum;
          if (t + r < length) lse[(size_t)h * tokens + first + t + r] = top + logf(sum);
        }
        memset(o, 0, sizeof o);
        RowsByRows(s, padded, last, v, o);
        for (int r = 0; t + r < last; ++r) {
          uint16_t* to = out + (size_t)(first + t + r) * heads * D + h * D;
          for (int i = 0; i < D; ++i) to[i] = Round(o[r * D + i] / sums[r]);
        }
      }
    }
    free(k); free(kt); free(v); free(q); free(s);
  }
}

static void PackGradient(const Batch* b, int first, int length, int column, int rotate, float* x, uint16_t* dqkv) {
  int width = (b->heads + 2 * b->kv_heads) * D;
  for (int t = 0; t < length; ++t) {
    if (rotate) Rotate(x + t * D, b->cosines + t * (D / 2), b->sines + t * (D / 2), -1.0f);
    uint16_t* row = dqkv + (size_t)(first + t) * width + column;
    for (int i = 0; i < D; ++i) row[i] = Round(x[t * D + i]);
  }
}

// dqkv: as qkv. out, dout: [tokens][heads * D].
void AttentionBackward(const uint16_t* qkv, const int32_t* starts, const float* cosines, const float* sines, int documents,
                       int heads, int kv_heads, int tokens, const uint16_t* out, const uint16_t* dout, const float* lse,
                       uint16_t* dqkv) {
  Batch b = {qkv, starts, cosines, sines, documents, heads, kv_heads, tokens};
  int group = heads / kv_heads;
  float scale = 1.0f / sqrtf(D);
  for (int task = documents * kv_heads - 1; task >= 0; --task) {
    int doc = task / kv_heads, g = task % kv_heads, first = starts[doc], length = starts[doc + 1] - first;
    int padded = RoundUp(length, 32);
    size_t n = (size_t)padded * D;
    float *k = Floats(n), *kt = Floats(n), *v = Floats(n), *vt = Floats(n), *q = Floats(n), *go = Floats(n);
    float *dk = Floats(n), *dv = Floats(n), *dq = Floats(n), *s = Floats(ROWS * padded), *ds = Floats(ROWS * padded);
    Unpack(&b, first, length, (heads + g) * D, 1, k);
    Unpack(&b, first, length, (heads + kv_heads + g) * D, 0, v);
    Transpose(k, length, padded, kt);
    Transpose(v, length, padded, vt);
    memset(dk, 0, n * 4);
    memset(dv, 0, n * 4);
    for (int h = g * group; h < (g + 1) * group; ++h) {
      memset(q, 0, n * 4);
      memset(go, 0, n * 4);
      memset(dq, 0, n * 4);
      Unpack(&b, first, length, h * D, 1, q);
      for (int i = 0; i < length * D; ++i) q[i] *= scale;
      for (int t = 0; t < length; ++t)
        for (int i = 0; i < D; ++i) go[t * D + i] = Load(dout[(size_t)(first + t) * heads * D + h * D + i]);
      for (int t = 0; t < length; t += ROWS) {
        int last = t + ROWS < length ? t + ROWS : length;
        RowsByColumns(q + t * D, kt, padded, RoundUp(last, 32), s);
        RowsByColumns(go + t * D, vt, padded, RoundUp(last, 32), ds);
        for (int r = 0; r < ROWS; ++r) {
          float *p = s + r * padded, *dp = ds + r * padded;
          int seen = t + r < length ? t + r + 1 : 0;
          float delta = 0, log_sum = seen ? lse[(size_t)h * tokens + first + t + r] : 0;
          for (int i = 0; seen && i < D; ++i)
            delta += go[(t + r) * D + i] * Load(out[(size_t)(first + t + r) * heads * D + h * D + i]);
          for (int j = 0; j < seen; ++j) { p[j] = Exp(p[j] - log_sum); dp[j] = p[j] * (dp[j] - delta); }
          for (int j = seen; j < last; ++j) p[j] = dp[j] = 0;
        }
        RowsByRows(ds, padded, last, k, dq + t * D);
        ColumnsByRows(ds, padded, last, q + t * D, dk);
        ColumnsByRows(s, padded, last, go + t * D, dv);
      }
      for (int i = 0; i < length * D; ++i) dq[i] *= scale;
      PackGradient(&b, first, length, h * D, 1, dq, dqkv);
    }
    PackGradient(&b, first, length, (heads + g) * D, 1, dk, dqkv);
    PackGradient(&b, first, length, (heads + kv_heads + g) * D, 0, dv, dqkv);
    free(k); free(kt); free(v); free(vt); free(q); free(go); free(dk); free(dv); free(dq); free(s); free(ds);
  }
}

// x += add (bf16, may be null); y = x / rms(x) * weight as bf16; scale[t] = 1 / rms.
void AddRmsNormForward(float* x, const uint16_t* add, const float* weight, float eps, int tokens, int width, uint16_t* y,
                       float* scale) {
  for (int t = 0; t < tokens; ++t) {
    float *row = x + (size_t)t * width, sum = 0;
    const uint16_t* a = add + (size_t)t * width;
    if (add) for (int i = 0; i < width; ++i) row[i] += Load(a[i]);
    for (int i = 0; i < width; ++i) sum += row[i] * row[i];
    float s = 1.0f / sqrtf(sum / width + eps);
    scale[t] = s;
    for (int i = 0; i < width; ++i) y[(size_t)t * width + i] = Round(row[i] * s * weight[i]);
  }
}

// y is the forward result; dx += gradient through the norm, and dx_low = bf16(dx) after that; dweight: [width], added to.
void RmsNormBackward(const uint16_t* dy, const uint16_t* y, const float* weight, const float* scale, int tokens, int width,
                     float* dx, uint16_t* dx_low, float* dweight) {
  float inverse[1024];
  for (int i = 0; i < width; ++i) inverse[i] = 1.0f / weight[i];
  for (int t = 0; t < tokens; ++t) {
    const uint16_t *g = dy + (size_t)t * width, *o = y + (size_t)t * width;
    float *to = dx + (size_t)t * width, dot = 0;
    for (int i = 0; i < width; ++i) {
      float product = Load(g[i]) * Load(o[i]);
      dot += product;
      dweight[i] += product * inverse[i];
    }
    dot /= width;
    for (int i = 0; i < width; ++i) {
      float value = to[i] + scale[t] * (Load(g[i]) * weight[i] - Load(o[i]) * inverse[i] * dot);
      to[i] = value;
      dx_low[(size_t)t * width + i] = Round(value);
    }
  }
}

// gate_up: [tokens][2 * width], the gate first; y = silu(gate) * up.
void SwiGluForward(const uint16_t* gate_up, int tokens, int width, uint16_t* y) {
  for (int t = 0; t < tokens; ++t) {
    const uint16_t *g = gate_up + (size_t)t * 2 * width, *u = g + width;
    for (int i = 0; i < width; ++i) {
      float x = Load(g[i]);
      y[(size_t)t * width + i] = Round(x * Sigmoid(x) * Load(u[i]));
    }
  }
}

void SwiGluBackward(const uint16_t* gate_up, const uint16_t* dy, int tokens, int width, uint16_t* dgate_up) {
  for (int t = 0; t < tokens; ++t) {
    const uint16_t *g = gate_up + (size_t)t * 2 * width, *u = g + width;
    uint16_t *dg = dgate_up + (size_t)t * 2 * width, *du = dg + width;
    for (int i = 0; i < width; ++i) {
      float x = Load(g[i]), s = Sigmoid(x), d = Load(dy[(size_t)t * width + i]);
      dg[i] = Round(d * Load(u[i]) * s * (1.0f + x * (1.0f - s)));
      du[i] = Round(d * x * s);
    }
  }
}

// Turns logits [rows][vocab] into weight[r] * (softmax - onehot(target)) in place; loss[r] = -log p(target), hit[r] = argmax is target.
void CrossEntropy(uint16_t* logits, const int64_t* targets, const float* weights, int rows, int vocab, float* loss,
                  float* hit) {
  for (int r = 0; r < rows; ++r) {
    uint16_t* row = logits + (size_t)r * vocab;
    float top = -1e30f, sum = 0, want = Load(row[targets[r]]);
    for (int i = 0; i < vocab; ++i) { float x = Load(row[i]); top = x > top ? x : top; }
    for (int i = 0; i < vocab; ++i) sum += Exp(Load(row[i]) - top);
    loss[r] = top + logf(sum) - want;
    hit[r] = want >= top;
    float c = weights[r] / sum;
    for (int i = 0; i < vocab; ++i) row[i] = Round(c * Exp(Load(row[i]) - top));
    row[targets[r]] = Round(c * Exp(want - top) - weights[r]);
  }
}
