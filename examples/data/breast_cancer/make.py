"""Trains the model of example 10 with scikit-learn and writes it beside the rows it has not seen.

    python make.py > examples/data/breast_cancer/test_rows.csv

The first line is the model: 30 weights and the intercept, for standardised features. Every other line is a patient:
30 standardised features, the diagnosis (1 benign, 0 malignant) and the probability of 1 that scikit-learn gives.
"""

import numpy
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

features, diagnoses = load_breast_cancer(return_X_y=True)
train, test, train_diagnoses, test_diagnoses = train_test_split(features, diagnoses, test_size=0.25, random_state=0)
scaler = StandardScaler().fit(train)
model = LogisticRegression(C=0.01).fit(scaler.transform(train), train_diagnoses)
rows = numpy.round(scaler.transform(test), 3)  # what the file holds is what is judged
print(*(f"{w:.9g}" for w in (*model.coef_[0], *model.intercept_)), sep=",")
for row, diagnosis, probability in zip(rows, test_diagnoses, model.predict_proba(rows)[:, 1]):
    print(*(f"{x:.3f}" for x in row), diagnosis, f"{probability:.9f}", sep=",")
