// The softmax of each row of a matrix.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

extern "C" void row_softmax(const float* in, float* out, std::int64_t rows, std::int64_t columns) {
    for (std::int64_t row = 0; row < rows; ++row, in += columns, out += columns) {
        // Without the largest value taken off, exp overflows.
        const float largest = *std::max_element(in, in + columns);
        float total = 0.0f;
        for (std::int64_t column = 0; column < columns; ++column) {
            out[column] = std::exp(in[column] - largest);
            total += out[column];
        }
        for (std::int64_t column = 0; column < columns; ++column) out[column] /= total;
    }
}
