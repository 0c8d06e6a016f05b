// The next token of a text from the logits of a model. Source: Keras Hub, keras_hub/src/samplers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"

namespace meshtrain {

struct Sampler {
  enum class Kind { kGreedy, kRandom, kTopK, kTopP, kBeam, kContrastive };
  Kind kind = Kind::kTopK;
  int64_t count = 5;   // k of top_k, top_p and contrastive, beams of beam
  double share = 1;    // p of top_p
  double alpha = 0.6;  // of contrastive: the weight of similarity against that of probability
  double temperature = 1;

  // A search computes `count` rows for each text.
  bool is_search() const { return kind == Kind::kBeam || kind == Kind::kContrastive; }
  int64_t rows_at_once(int64_t texts) const { return is_search() ? count : texts; }
  bool gives_one_text() const { return is_search() || kind == Kind::kGreedy; }
};

// "greedy", "random", "top_k=40", "top_p=0.9" or "top_p=0.9,40", "beam=4", "contrastive=4" or
// "contrastive=4,0.5". A name alone has Keras Hub's numbers: 5, top_p 0.1 of all ids, contrastive
// 5,0.6. Throws ConfigError E140 for another text, which `name` has.
Sampler parse_sampler(std::string_view text, std::string_view name = "--sampler",
                      const SourceLoc& loc = {});

// Returns an id. Probabilities are softmax(scores / temperature); of these greedy takes the
// largest, top_k the k largest, top_p the largest ones, k at most, until they exceed p in sum.
// Among equal ones the lowest id comes first. The first id counts where the sum of those kept, in
// the order of ids, exceeds `uniform` in [0, 1) of the whole. -infinity excludes an id; a search is
// not for one row.
int32_t sample_id(const Sampler& sampler, std::span<const float> scores, double uniform);

// The uniform number of a sample at a position: a function of these three, so that a text depends
// neither on the mesh nor on the texts beside it.
double sampling_number(int64_t seed, int64_t sample, int64_t position);

// One step of beam search over the rows of one text.
struct Beam {
  double score = 0;        // sum of the logarithms of probabilities
  bool has_ended = false;  // keeps its score and gets no more ids
};
struct BeamStep {
  int parent = 0;   // the row that this row continues
  int32_t id = -1;  // -1: the parent has ended
  Beam beam;
};
// `scores`: of each row, (rows, ids). Returns as many rows, the best first. All beams are equal
// before the first step, and only row 0 counts then.
std::vector<BeamStep> beam_step(const Sampler& sampler, std::span<const Beam> beams,
                                std::span<const float> scores, bool is_first);

// Contrastive search: the likeliest ids, each of which is tried in a row of its own.
struct Candidate {
  int32_t id = 0;
  double probability = 0;
};
// Returns as many as the sampler has rows, the likeliest first; the last one again where there are
// fewer ids.
std::vector<Candidate> contrastive_candidates(const Sampler& sampler,
                                              std::span<const float> scores);
// Returns the row with the largest (1 - alpha) * probability - alpha * similarity, the first of
// equal ones. `similarities`: of each candidate to the token before it that is most like it.
size_t contrastive_choice(const Sampler& sampler, std::span<const Candidate> candidates,
                          std::span<const double> similarities);

}  // namespace meshtrain
